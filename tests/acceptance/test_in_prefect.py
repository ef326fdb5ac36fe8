"""An instructor's hand in the Prefect UI: cancel, suspend, resume, control."""

from datetime import UTC, datetime, timedelta

import pytest
from poll import wait_until

from deployments.cli.trainings.control import set_alarm
from gan_core.settings import settings
from gan_core.units import TrainingState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def plan(tiny):
    return tiny.changed(
        generator_width=8, discriminator_width=8, images_per_unit=80, quorum=240, iterations=10, checkpoint_interval=4
    )


def set_state(school, run: str, kind: str, name: str, **details) -> None:
    """What a button of the UI does."""
    state = {"type": kind, "name": name, "state_details": details}
    school.stack._api("POST", f"/flow_runs/{run}/set_state", {"state": state})


def control(school, **parameters) -> None:
    """Run the deployment `control` from its form."""
    deployment = school.stack._api("GET", "/deployments/name/control/control")
    body = {"state": {"type": "SCHEDULED"}, "parameters": parameters}
    run = school.stack._api("POST", f"/deployments/{deployment['id']}/create_flow_run", body)["id"]
    wait_until(lambda: school.stack.run_state(run)[0] == "Completed", 90, f"control({parameters})")


@pytest.mark.rehearsal
def test_cancelling_the_run_pauses_the_training_and_control_changes_and_resumes_it(school, plan):
    run = school.start("hand", plan)
    school.await_iteration("hand", 2)
    set_state(school, run, "CANCELLING", "Cancelling")
    wait_until(lambda: school.state("hand") is TrainingState.PAUSED, 60, "the pause")
    wait_until(lambda: school.stack.run_state(run)[0] == "Cancelled", 60, "the end of the run")
    assert 2 <= school.iteration("hand") < plan.iterations
    control(school, name="hand", action="resume", changes={"sample_interval": 5})
    school.await_success("hand")
    school.assert_equals_the_reference("hand", plan)
    told = [text for (text,) in school.ask("SELECT text FROM classgan.events WHERE kind = 'plan'")]
    assert any("by the Prefect UI: sample_interval 2 → 5" in text for text in told)


def test_the_alarm_is_an_automation_that_prefect_accepts(school, monkeypatch):
    """That it also fires was seen by hand: it takes as long as a training must stand still."""
    monkeypatch.setattr(settings(), "home", school.stack.home)
    for minutes in (10, 5):  # set again, it is replaced
        set_alarm("http://127.0.0.1:9/hook", minutes)
    (alarm,) = school.stack._api("POST", "/automations/filter", {})
    assert (alarm["name"], alarm["enabled"], alarm["trigger"]["within"]) == ("classgan-alarm", True, 300)
    set_alarm("", 10)
    assert school.stack._api("POST", "/automations/filter", {}) == []


@pytest.mark.rehearsal
def test_suspending_the_run_pauses_the_training_and_resuming_it_goes_on(school, plan):
    run = school.start("suspended", plan)
    school.await_iteration("suspended", 2)
    limit = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()  # the UI's own; a run suspended for longer fails
    set_state(school, run, "PAUSED", "Suspended", pause_reschedule=True, pause_timeout=limit)
    wait_until(lambda: school.state("suspended") is TrainingState.PAUSED, 60, "the pause")
    assert school.iteration("suspended") < plan.iterations
    school.stack._api("POST", f"/flow_runs/{run}/resume")
    school.await_success("suspended")
    school.assert_equals_the_reference("suspended", plan)
    wait_until(lambda: school.stack.run_state(run)[0] == "Completed", 60, "the end of the run")
