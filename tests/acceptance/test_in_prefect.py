"""An instructor's hand in the Prefect UI: cancel, suspend, resume, control; and what Prefect shows of a machine that vanished."""

from datetime import UTC, datetime, timedelta

import pytest
from killing import kill_tree
from poll import wait_until
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from deployments.commands import controls
from gan_core.settings import settings
from gan_core.units import TrainingState
from tasks import crash_vanished

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def plan(tiny):
    return tiny.changed(
        generator_width=8, discriminator_width=8, images_per_unit=80, quorum=240, iterations=30, checkpoint_interval=4
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


def artifacts(school) -> dict[str, dict]:
    """The newest artifact of each key."""
    found = school.stack._api("POST", "/artifacts/latest/filter", {"limit": 200})
    return {artifact["key"]: artifact for artifact in found}


def test_prefect_shows_samples_progress_leaderboard_and_a_report(school, plan):
    school.start("shown", plan.changed(iterations=4, evaluate_interval=2))
    school.await_success("shown")
    wait_until(lambda: "report-shown" in artifacts(school), 60, "the report")
    shown = artifacts(school)
    assert shown["progress-shown"]["data"] == 100
    versions = {"artifacts": {"key": {"any_": ["progress-shown"]}}}
    assert len(school.stack._api("POST", "/artifacts/filter", versions)) == 1  # updated, not made again
    assert "rank" in shown["leaderboard"]["data"]
    report = shown["report-shown"]["data"]
    assert report.count("data:image/png;base64,") == 2  # curves and samples
    assert "| Frechet distance, lower is better |" in report
    assert len(report) < 500_000


def test_the_alarm_is_an_automation_that_prefect_accepts(school, monkeypatch):
    """That it also fires was seen by hand: it takes as long as a training must stand still."""
    monkeypatch.setattr(settings(), "home", school.stack.home)
    for minutes in (10, 5):  # set again, it is replaced
        controls.set_alarm("http://127.0.0.1:9/hook", minutes)
    (alarm,) = school.stack._api("POST", "/automations/filter", {})
    assert (alarm["name"], alarm["enabled"], alarm["trigger"]["within"]) == ("classgan-alarm", True, 300)
    controls.set_alarm("", 10)
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


def test_a_run_whose_machine_vanished_is_shown_as_crashed_and_no_other(school, plan, monkeypatch):
    monkeypatch.setattr(crash_vanished, "VANISHED", 6.0)
    monkeypatch.setattr(settings(), "database_url", school.stack.postgres.url())
    school.start("vanished", plan.changed(iterations=400))
    school.await_iteration("vanished", 2)
    with temporary_settings({PREFECT_API_URL: f"{school.stack.ui}/api"}), get_client(sync_client=True) as client:
        ((gone,),) = school.ask("SELECT run_id FROM classgan.workers WHERE name = 'alan'")
        alive = (
            "SELECT run_id FROM classgan.workers WHERE last_seen > now() - interval '3 seconds' AND run_id IS NOT NULL"
        )
        assert gone not in crash_vanished.vanished_shifts(client)
        kill_tree(school.stack.children["worker-alan"].pid)
        wait_until(lambda: gone in crash_vanished.vanished_shifts(client), 60, "the suspicion")
        living = {run for (run,) in school.ask(alive)}
        assert living
        suspects = crash_vanished.vanished_shifts(client)  # perhaps with others that tests have killed before
        assert not living & suspects
        crash_vanished.crash(client, {gone})
        assert school.stack.run_state(str(gone))[0] == "Crashed"
    school.cancel("vanished")
    school.stack.start_worker("alan")
