"""What is believed of students' reports at the class server: workers' names, events, logs and artifacts."""

import json
import re
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from gated import HTTP, SECRETS, STUDENTS, Gate, event
from poll import wait_until
from websockets.exceptions import ConnectionClosed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_workers_bear_their_students_name(gate):
    def names() -> set[str]:
        return {worker["name"] for worker in gate.ask("POST", "/work_pools/students/workers/filter", {})}

    for name in (
        "alan",
        "alan.2",
        "alan-laptop",
        "mallory",
        "mallory.2",
        "alanna",
        "",
        None,
        5,
        "alan/../x",
        "alan " + "x" * 99,
    ):
        beat = {"name": name, "heartbeat_interval_seconds": 10**9}
        assert gate.call("alan", "POST", "/work_pools/students/workers/heartbeat", beat).status_code == 204
    assert {name for name in names() if name.startswith("alan")} >= {"alan", "alan.2", "alan-laptop"}
    assert not names() & {"mallory", "mallory.2", "alanna", "", "alan/../x"}
    with gate.socket("alan", "/work_pools/students/workers/connect") as socket:
        socket.send(json.dumps(hello("mallory-in-disguise", create_pool_if_not_found=True, worker_type="process")))
        assert json.loads(socket.recv(timeout=20))["type"] == "worker.ready.v1"
        assert "mallory-in-disguise" not in names()
    for worker in gate.ask("POST", "/work_pools/students/workers/filter", {}):
        assert worker["heartbeat_interval_seconds"] <= 60
    with pytest.raises((ConnectionClosed, TimeoutError)), gate.socket("alan", "/work_pools/new/workers/connect"):
        raise AssertionError("it was let in")
    assert "new" not in {pool["name"] for pool in gate.ask("POST", "/work_pools/filter", {})}


def hello(name: str, **more: object) -> dict:
    return {
        "type": "worker.hello.v1",
        "id": str(uuid.uuid4()),
        "sent_at": "2026-01-01T00:00:00Z",
        "payload": {
            "consumer_id": str(uuid.uuid4()),
            "worker_name": name,
            "worker_type": "gan-student",
            "heartbeat_interval_seconds": 10,
            "supported_channel_versions": ["work_pool_worker_channel.v1"],
            "requested_capabilities": ["worker_heartbeat.v1", "work_pool_snapshot.v1", "cleanup_delivery.v1"],
            "handled_cleanup_kinds": ["cancelling_timeout"],
            **more,
        },
    }


def test_of_a_students_events_only_signs_of_life_of_their_own_are_believed(gate, theirs):
    mine, task = gate.taken_shift("ada"), str(uuid.uuid4())
    forged = [
        event("prefect.flow-run.heartbeat", f"prefect.flow-run.{theirs}"),
        event("prefect.flow-run.Crashed", f"prefect.flow-run.{mine}"),
        event("prefect.flow-run.Completed", f"prefect.flow-run.{theirs}"),
        event("prefect.worker.stopped", "prefect.worker.gan-student.grace"),
        event("prefect.work-pool.ready", "prefect.work-pool.x"),
        event("ada.made.this.up", f"prefect.flow-run.{mine}"),
        event(
            "prefect.task-run.Running",
            f"prefect.task-run.{task}",
            payload={"validated_state": {"type": "RUNNING"}, "task_run": {"task_key": "x", "dynamic_key": "x"}},
            related=[{"prefect.resource.id": f"prefect.flow-run.{theirs}", "prefect.resource.role": "flow-run"}],
        ),
    ]
    before = len(events(gate))
    with gate.socket("ada", "/events/in") as socket:
        for one in (*forged, "not an object", 5):
            socket.send(json.dumps(one))
        socket.send("not json")
        real = event(
            "prefect.flow-run.heartbeat", f"prefect.flow-run.{mine}", payload={"x": 1}, related=forged[6]["related"]
        )
        socket.send(json.dumps(real))
        wait_until(
            lambda: [
                e
                for e in events(gate)
                if e["resource"]["prefect.resource.id"] == f"prefect.flow-run.{mine}" and "heart" in e["event"]
            ],
            30,
            "the real event",
        )
    found = events(gate)
    about = {f"prefect.flow-run.{run}" for run in (mine, theirs)}
    (kept,) = [e for e in found if "heartbeat" in e["event"] and e["resource"]["prefect.resource.id"] in about]
    assert kept["resource"] == {"prefect.resource.id": f"prefect.flow-run.{mine}"}
    assert (kept["payload"], kept["related"]) == ({}, [])
    assert kept["occurred"] > "2021"
    assert len(found) > before
    assert {e["id"] for e in found}.isdisjoint(one["id"] for one in forged)
    stopped = [e["resource"]["prefect.resource.id"] for e in found if e["event"] == "prefect.worker.stopped"]
    assert "prefect.worker.gan-student.grace" not in stopped
    assert not [e for e in found if e["event"] == "ada.made.this.up"]
    assert gate.ask("POST", "/task_runs/filter", {}) == []
    assert gate.state_of(mine) == "RUNNING"


def events(gate: Gate) -> list[dict]:
    names = ["prefect.flow-run.heartbeat", "prefect.worker.stopped", "ada.made.this.up"]
    wanted = {"event": {"name": names}, "occurred": {"since": "2019-01-01T00:00:00Z"}}
    return gate.ask("POST", "/events/filter", {"filter": wanted, "limit": 50})["events"]


def test_a_student_hears_of_their_own_runs_only(gate, theirs):
    mine, hers = gate.taken_shift("ada"), gate.taken_shift("grace")
    with gate.socket("ada", "/events/out") as socket:
        socket.send(json.dumps({"type": "filter", "filter": {"event": {"prefix": [""]}}}))

        # Her own is cancelled last: what came before it is all there is. As often as it takes until Prefect listens, too.
        def cancel(run: str) -> None:
            gate.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": True})

        def hear() -> dict | None:
            cancel(hers)
            cancel(mine)
            with suppress(TimeoutError):
                return json.loads(socket.recv(timeout=2))["event"]
            return None

        heard = wait_until(hear, 60, "an event")
    assert heard["event"] == "prefect.flow-run.Cancelling"
    assert heard["resource"]["prefect.resource.id"] == f"prefect.flow-run.{mine}"


def test_logs_and_artifacts_have_limits_and_carry_nothing_that_a_browser_fetches(gate, theirs):
    mine = gate.taken_shift("ada")

    def line(run: object, message: object = "hello", **more: object) -> dict:
        return {
            "name": "x",
            "level": 20,
            "message": message,
            "timestamp": "2026-01-01T00:00:00Z",
            "flow_run_id": run,
            **more,
        }

    lines = [line(mine), line(mine, "long " * 10_000), line(theirs, "forged"), line(None), line("x"), "no line"]
    assert gate.call("ada", "POST", "/logs/", [*lines, line(mine, task_run_id=str(uuid.uuid4()))]).status_code == 201
    found = gate.ask("POST", "/logs/filter", {"logs": {"flow_run_id": {"any_": [mine, theirs]}}})
    assert sorted(len(entry["message"]) for entry in found if entry["flow_run_id"] == mine) == [5, 5, 4_000]
    assert "forged" not in [entry["message"] for entry in found]
    assert not [entry for entry in found if entry["task_run_id"]]

    tracked = "![x](http://evil.example/x.png) <img src=http://evil.example> [click](https://evil.example)"
    artifact = {"key": "shift", "type": "markdown", "data": tracked, "description": tracked, "flow_run_id": mine}
    made = gate.call("ada", "POST", "/artifacts/", artifact)
    assert made.status_code == 201, made.text
    stored = gate.ask("GET", f"/artifacts/{made.json()['id']}")
    for text in (stored["data"], stored["description"]):
        assert not re.search(r"[<\[]|://", text)
    refused = (
        {"data": "x" * 20_000},
        {"key": "samples-demo"},
        {"type": "image", "data": "http://evil.example"},
        {"flow_run_id": None},
        {"flow_run_id": theirs},
    )
    for change in refused:
        assert gate.call("ada", "POST", "/artifacts/", {**artifact, **change}).status_code in (403, 413)


def test_a_student_does_not_fill_the_disk(gate):
    """The rate of what is written is bounded; who exceeds it waits."""
    mine = gate.taken_shift("alan")
    full = {"name": "x", "level": 20, "message": "x" * 4_000, "timestamp": "2026-01-01T00:00:00Z", "flow_run_id": mine}
    answers = [gate.call("alan", "POST", "/logs/", [full] * 150).status_code for _ in range(4)]
    assert answers[0] == 201
    assert answers[-1] == 429


def test_of_thirty_heartbeats_in_the_same_moment_none_is_refused(gate):
    """On SQLite, Prefect answered 26 of 30 at once with 503."""
    names = [STUDENTS[n % len(STUDENTS)] for n in range(30)]
    barrier = threading.Barrier(len(names))

    def beat(number: int) -> int:
        login = names[number]
        body = {"name": f"{login}-{number}", "heartbeat_interval_seconds": 10}
        barrier.wait(60)
        url = f"{gate.url}/api/work_pools/students/workers/heartbeat"
        return HTTP.post(url, json=body, auth=(login, SECRETS[login])).status_code

    with ThreadPoolExecutor(len(names)) as pool:
        answers = Counter(pool.map(beat, range(len(names))))
    assert set(answers) <= {200, 204}, answers
    for number, login in enumerate(names):  # or they would be waited for as machines of the class, for half a minute
        gate.ask("DELETE", f"/work_pools/students/workers/{login}-{number}")
