"""Who may do what over HTTP: owners, other students, the instructor, and nobody without a login."""

from uuid import uuid4

import psycopg
import pytest
from classroom import Classroom
from gated import HTTP, SMALL
from poll import wait_until

from deployments.server.gate.runs import Refused
from deployments.server.service.rights import Caller
from gan_core.plan import Plan
from gan_core.scheduler.demand import Demand
from gan_core.settings import Settings
from gan_core.settings import settings as our_settings
from gan_core.store import student
from gan_core.store.coordinator import trainings
from gan_core.units import TrainingState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_what_is_somebody_elses_isnt_there(service, connection):
    """Every route of a training, for another owner; the instructor sees and does all."""
    service.submit("ada", "hers")
    service.submit("grace", "other")
    paths = service.ok("instructor", "GET", "/openapi.json")["paths"]
    tried = 0
    for path, methods in paths.items():
        if "{name}" not in path or "/workers/" in path:
            continue
        filled = path.removeprefix("/classgan/v1").replace("{name}", "hers").replace("{iteration}", "0")
        for method in methods:
            body = {"priority": -1} if path.endswith("priority") else {} if path.endswith("move") else None
            answer = service.ask_as("grace", method.upper(), filled, body)
            assert answer.status_code == (403 if path.endswith(("/move", "/logs")) else 404), f"{method} {path}"
            assert "ada" not in answer.text.lower()
            tried += 1
    assert tried >= 12
    assert trainings.get(connection, "hers").state is TrainingState.QUEUED
    assert [t["name"] for t in service.ok("grace", "GET", "/trainings")["items"]] == ["other"]
    assert [(t["name"], t["position"]) for t in service.ok("grace", "GET", "/queue")] == [("other", 2)]
    assert [t["name"] for t in service.ok("instructor", "GET", "/trainings")["items"]] == ["other", "hers"]
    page = service.ok("instructor", "GET", "/trainings", params={"limit": 1})
    assert [t["name"] for t in page["items"]] == ["other"]
    rest = service.ok("instructor", "GET", "/trainings", params={"after": page["next"], "state": "queued"})
    assert [t["name"] for t in rest["items"]] == ["hers"]
    assert "already" in service.refused(409, "grace", "POST", "/trainings", {"name": "hers", "plan": SMALL})
    assert service.ok("instructor", "POST", "/trainings/hers/cancel")["state"] == "cancelled"


def test_the_order_is_the_instructors(service):
    for name in ("one", "two"):
        service.submit("ada", name)
    assert "Only the instructor" in service.refused(403, "ada", "POST", "/trainings/two/move", {})
    assert "may only lower it (got 5)" in service.refused(
        403, "ada", "POST", "/trainings/two/priority", {"priority": 5}
    )
    assert service.ok("ada", "GET", "/trainings/two")["position_in_queue"] == 2
    assert "at the top" in service.ok("instructor", "POST", "/trainings/two/move", {})["message"]
    wait_until(lambda: service.ok("ada", "GET", "/trainings/two")["position_in_queue"] == 1, 10, "its new place")
    assert service.ok("instructor", "POST", "/trainings/two/move", {"after": "one"})["message"].startswith("two comes")
    service.ok("ada", "POST", "/trainings/one/priority", {"priority": -1})
    wait_until(
        lambda: service.ok("ada", "GET", "/trainings/two")["position_in_queue"] == 1, 10, "the lower one's place"
    )


def test_a_students_plan_costs_the_instructor_nothing_more(service, connection):
    """Nor does it lead around the checks of credit, to another's files, or past the others."""
    for knobs, demand, said in (
        ({"data": "folder:/etc"}, {}, "data is 'folder:/etc': a student's plan learns from what the class has: digits"),
        ({"hub_repo": "me/mine"}, {}, "hub_repo is 'me/mine': in a student's plan it stays ''"),
        ({"checks": "off"}, {}, "checks is 'off'"),
        ({}, {"priority": 1}, "priority is 1: a student's is 0 or lower"),
    ):
        body = {"name": "sly", "plan": SMALL | knobs, "demand": demand}
        assert said in service.refused(422, "mallory", "POST", "/trainings", body)
    assert service.ok("instructor", "POST", "/trainings", {"name": "faces", "plan": SMALL | {"data": "folder:faces"}})
    assert service.ok("mallory", "POST", "/trainings", {"name": "too", "plan": SMALL | {"data": "folder:faces"}})
    for name in ("b", "c"):
        service.submit("mallory", name)
    over = service.refused(403, "mallory", "POST", "/trainings", {"name": "d", "plan": SMALL})
    assert "You have 3 trainings that run or wait, and a student may have 3" in over
    assert trainings.find(connection, "d") is None
    service.ok("mallory", "POST", "/trainings/b/pause")
    service.submit("mallory", "d")
    assert "You have 3" in service.refused(403, "mallory", "POST", "/trainings/b/resume")
    assert trainings.get(connection, "b").state is TrainingState.PAUSED


def test_who_may_not_submit_is_told_so(monkeypatch, connection):
    """As a class is until the instructor allows it; nor may one who is called like the account that runs the class."""
    assert Settings.model_fields["student_trainings"].default == 0
    for allowed, account, said in ((0, "root", "may not submit trainings"), (3, "ada", "Ask for another login")):
        monkeypatch.setenv("CLASSGAN_STUDENT_TRAININGS", str(allowed))
        monkeypatch.setattr("getpass.getuser", lambda account=account: account)
        our_settings.cache_clear()
        with pytest.raises(Refused, match=said):
            Caller("ada").require_submission(connection, Plan(), Demand())
        Caller("instructor").require_submission(connection, Plan(data="folder:x"), Demand(priority=9))
    our_settings.cache_clear()


def test_workers_are_the_instructors_to_drain(service, base, cache, connection):
    with psycopg.connect(Classroom(base, cache).student_url("alan"), autocommit=True) as own:
        student.register(own, "alan-desk", uuid4(), "cpu", {})
    assert "Only the instructor" in service.refused(403, "alan", "POST", "/workers/alan-desk/drain")
    service.ok("instructor", "POST", "/workers/alan-desk/drain")
    assert connection.execute("SELECT drained FROM classgan.workers WHERE name = 'alan-desk'").fetchone() == (
        "instructor",
    )
    service.ok("instructor", "POST", "/workers/alan-desk/undrain")
    assert "There is no worker 'nobody'" in service.refused(404, "instructor", "POST", "/workers/nobody/drain")
    assert "alan-desk" in {w["name"] for w in service.ok("instructor", "GET", "/workers")}
    seen = [w["name"] for w in service.ok("grace", "GET", "/workers")]
    assert "Alan T. (desk)" in seen
    assert not [name for name in seen if name.startswith("alan")]


def test_nobody_comes_in_without_a_login_and_prefects_routes_are_as_they_were(service):
    for path in ("/trainings", "/openapi.json", "/", "/me"):
        assert HTTP.get(f"{service.url}/classgan/v1{path}").status_code == 401
    assert HTTP.get(f"{service.url}/classgan").status_code == 401
    assert service.ok("mallory", "GET", "/me")["is_instructor"] is False
    assert service.call("mallory", "POST", "/deployments/filter", {}).status_code == 403
    assert service.call("mallory", "GET", "/csrf-token").status_code != 403
    assert service.ask("POST", "/deployments/filter", {}) == []
    assert "There is no /classgan/v1/nowhere" in service.refused(404, "ada", "GET", "/nowhere")


def test_the_coordinators_log_is_the_instructors(service, connection):
    service.submit("ada", "logged")
    assert "Only the instructor reads the coordinator's log" in service.refused(
        403, "ada", "GET", "/trainings/logged/logs"
    )
    assert service.ok("instructor", "GET", "/trainings/logged/logs")["items"] == []
    flow = service.ask("POST", "/flows/", {"name": "train"})["id"]
    run = service.ask("POST", "/flow_runs/", {"flow_id": flow, "name": "train logged", "state": {"type": "RUNNING"}})[
        "id"
    ]
    lines = [
        {"name": "x", "level": 20, "message": text, "timestamp": "2026-01-01T00:00:00Z", "flow_run_id": run}
        for text in ("one", "two")
    ]
    service.ask("POST", "/logs/", lines)
    found = wait_until(lambda: service.ok("instructor", "GET", "/trainings/logged/logs")["items"], 20, "its log")
    assert {line["text"] for line in found} == {"one", "two"}
