"""Whose a run is: taking, changing and ending runs at the class server, as students who try others'."""

import asyncio
import json
import threading
import uuid

import pytest
from gated import SECRETS, SHUT
from poll import wait_until
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from deployments.server.gate.runs import CLUSTER_SHIFT, OPEN_RUNS, SHIFT, Refused, Shifts
from gan_core.store.logins import CLUSTER_LOGIN
from tasks.background.supply_shifts import top_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


# What is another's


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/flow_runs/{run}", None),
        ("PATCH", "/flow_runs/{run}", {"infrastructure_pid": "1", "name": "mine"}),
        ("PATCH", "/flow_runs/{run}/labels", {"prefect.worker.name": "ada"}),
        ("POST", "/flow_runs/{run}/set_state", {"state": {"type": "CRASHED"}, "force": True}),
        ("POST", "/flow_runs/{run}/set_state", {"state": {"type": "COMPLETED", "data": {"a": 1}}}),
        ("POST", "/flow_runs/{run}/set_state", {"state": {"type": "SCHEDULED"}}),
        (
            "POST",
            "/logs/",
            [{"name": "x", "level": 20, "message": "forged", "timestamp": "{now}", "flow_run_id": "{run}"}],
        ),
        ("POST", "/artifacts/", {"key": "shift", "type": "markdown", "data": "forged", "flow_run_id": "{run}"}),
        ("PATCH", "/artifacts/{artifact}", {"data": "forged"}),
        ("GET", "/work_pools/instructor", None),
        ("POST", "/work_pools/instructor/queues/filter", {}),
        ("POST", "/work_pools/instructor/workers/heartbeat", {"name": "ada"}),
        ("GET", "/work_queues/{queue}", None),
        ("GET", "/deployments/{train}", None),
        ("GET", "/flows/{train_flow}", None),
    ],
)
def test_what_is_anothers_is_shut_and_stays_as_it_is(gate, theirs, method, path, body):
    """Each allowed route, asked by ada for what is grace's or the instructor's."""
    train = gate.ask("GET", "/deployments/name/train/train")
    artifact = gate.call(
        "grace", "POST", "/artifacts/", {"key": "shift", "type": "markdown", "data": "hers", "flow_run_id": theirs}
    )
    assert artifact.status_code == 201, artifact.text
    queue = gate.ask("POST", "/work_pools/instructor/queues/filter", {})[0]["id"]
    names = {
        "run": theirs,
        "artifact": artifact.json()["id"],
        "queue": queue,
        "train": train["id"],
        "train_flow": train["flow_id"],
        "now": "2026-01-01T00:00:00Z",
    }
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
        body = json.loads(json.dumps(body).replace(f"{{{name}}}", value))
    before = gate.ask("GET", f"/flow_runs/{theirs}")
    answer = gate.call("ada", method, path, body)
    assert answer.status_code in SHUT, answer.text
    after = gate.ask("GET", f"/flow_runs/{theirs}")
    changing = ("estimated_run_time", "total_run_time", "estimated_start_time_delta")
    assert {k: v for k, v in after.items() if k not in changing} == {
        k: v for k, v in before.items() if k not in changing
    }
    assert gate.ask("GET", f"/artifacts/{names['artifact']}")["data"] == "hers"
    logs = gate.ask("POST", "/logs/filter", {"logs": {"flow_run_id": {"any_": [theirs]}}})
    assert "forged" not in [line["message"] for line in logs]


def test_a_look_for_runs_finds_only_ones_own(gate, theirs):
    mine = gate.taken_shift("ada")
    for asked in (
        {"id": {"any_": [mine, theirs]}},
        {"id": {"any_": [mine, theirs]}, "operator": "or_", "state": {"type": {"any_": ["RUNNING"]}}},
    ):
        found = gate.call("ada", "POST", "/flow_runs/filter", {"flow_runs": asked, "flows": {}, "limit": 200})
        assert [run["id"] for run in found.json()] == [mine], found.text
    for asked in ({}, None, {"id": {"any_": [theirs]}}, {"id": {"not_any_": [mine]}}, {"id": "x"}, []):
        assert gate.call("ada", "POST", "/flow_runs/filter", {"flow_runs": asked}).json() == []


# Taking runs


def test_of_two_students_who_see_the_same_run_one_gets_it(gate):
    """However often and however fast: never both, never a way to take it away afterwards."""
    for _ in range(5):
        run, answers = gate.scheduled_shift(), {}

        def take(login: str, run=run, answers=answers) -> None:
            state = {"type": "PENDING", "name": "Submitting", "message": f"Taken by {login}."}
            answers[login] = gate.call(login, "POST", f"/flow_runs/{run}/set_state", {"state": state}).json()["status"]

        takers = [threading.Thread(target=take, args=(login,)) for login in ("grace", "alan")]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join()
        assert sorted(answers.values()) == ["ABORT", "ACCEPT"]
        winner = max(answers, key=lambda login: answers[login] == "ACCEPT")
        loser = "alan" if winner == "grace" else "grace"
        take(loser)
        assert answers[loser] == "ABORT"
        for state in ("RUNNING", "COMPLETED"):
            assert (
                gate.call(loser, "POST", f"/flow_runs/{run}/set_state", {"state": {"type": state}}).status_code == 403
            )
        ended = gate.call(winner, "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}})
        assert ended.json()["status"] == "ACCEPT"


def test_force_and_data_and_words_that_are_the_gates_are_dropped(gate):
    run = gate.taken_shift("ada")
    submitting = {"type": "PENDING", "name": "Submitting", "message": "Taken by grace."}
    assert (
        gate.call("ada", "POST", f"/flow_runs/{run}/set_state", {"state": submitting, "force": True}).json()["status"]
        == "ABORT"
    )
    done = {"type": "COMPLETED", "name": "Won", "data": {"storage_key": "x"}, "message": "m" * 9_000}
    done["state_details"] = {"deployment_concurrency_lease_id": str(uuid.uuid4()), "cache_key": "x"}
    answer = gate.call("ada", "POST", f"/flow_runs/{run}/set_state", {"state": done, "force": True})
    assert answer.json()["status"] == "ACCEPT", answer.text
    state = gate.ask("GET", f"/flow_runs/{run}")["state"]
    assert (state["name"], state["data"], len(state["message"])) == ("Completed", None, 1_000)
    assert state["state_details"]["deployment_concurrency_lease_id"] is None
    assert state["state_details"]["cache_key"] is None
    again = gate.call("ada", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CRASHED"}, "force": True})
    assert again.json()["status"] == "ABORT"


def test_only_some_fields_of_ones_own_run_can_be_changed(gate):
    run = gate.taken_shift("ada")
    before = gate.ask("GET", f"/flow_runs/{run}")
    changes = {
        "infrastructure_pid": "123",
        "name": "shift of grace",
        "tags": ["x"],
        "parameters": {"max_minutes": 1},
        "job_variables": {"command": "touch x"},
        "empirical_policy": {"retries": 1_000},
        "flow_version": "v" * 1_000,
    }
    assert gate.call("ada", "PATCH", f"/flow_runs/{run}", changes).status_code == 204
    labels = {"prefect.worker.name": "w" * 1_000, "classgan": "x", **{f"label-{n}": "x" for n in range(100)}}
    assert gate.call("ada", "PATCH", f"/flow_runs/{run}/labels", labels).status_code == 204
    after = gate.ask("GET", f"/flow_runs/{run}")
    assert after["name"] == "shift of ada"
    for kept in ("tags", "parameters", "job_variables", "empirical_policy", "infrastructure_pid", "flow_version"):
        assert after[kept] == before[kept]
    assert set(after["labels"]) - set(before["labels"]) == {"prefect.worker.name"}
    gate.call("ada", "PATCH", f"/flow_runs/{run}", {"name": "shift of ada cuda:1"})
    assert gate.ask("GET", f"/flow_runs/{run}")["name"] == "shift of ada cuda:1"


def test_nobody_hoards_runs(gate):
    for _ in range(OPEN_RUNS):
        gate.taken_shift("mallory")
    run = gate.scheduled_shift()
    answer = gate.call("mallory", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "PENDING"}})
    assert answer.json()["status"] == "ABORT"
    assert gate.state_of(run) == "SCHEDULED"
    gate.end(run)


def test_who_takes_runs_and_never_begins_them_keeps_nobody_else_without(gate):
    """The instructor's coordinator puts another run there, whatever waits for a hoarder."""
    while left := gate.call("ada", "POST", "/work_pools/students/get_scheduled_flow_runs", {}).json():
        gate.end(left[0]["flow_run"]["id"])
    hoarded = [gate.scheduled_shift() for _ in range(4)]
    for run in hoarded:
        taken = gate.call("alan", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "PENDING"}})
        assert taken.json()["status"] == "ACCEPT"
    mine = {PREFECT_API_URL: f"{gate.url}/api", PREFECT_API_AUTH_STRING: f"instructor:{SECRETS['instructor']}"}
    with temporary_settings(mine), get_client(sync_client=True) as client:
        assert top_up(client) == 1
        assert top_up(client) == 0
    polled = lambda: gate.call("ada", "POST", "/work_pools/students/get_scheduled_flow_runs", {}).json()  # noqa: E731
    (found,) = wait_until(polled, 20, "the other run")
    for run in (*hoarded, found["flow_run"]["id"]):
        gate.end(run)


def test_a_run_of_a_deployment_made_a_moment_ago_is_a_shift():
    """The pool for pods came after the last look for deployments, and its first pod at once."""
    there: dict[str, dict] = {f"/deployments/name/{SHIFT}": {"id": "shift"}}

    class Inner:
        async def get(self, path: str) -> dict | None:
            return there.get(path)

    async def story() -> None:
        shifts = Shifts(Inner())  # ty: ignore[invalid-argument-type]
        await shifts.deployment()
        ours, other = uuid.uuid4(), uuid.uuid4()
        there[f"/deployments/name/{CLUSTER_SHIFT}"] = {"id": "pods"}
        there[f"/flow_runs/{ours}"], there[f"/flow_runs/{other}"] = (
            {"id": str(ours), "state": None, "deployment_id": "pods"},
            {"id": str(other), "state": None, "deployment_id": "train"},
        )
        await shifts.require_own(CLUSTER_LOGIN, ours)
        with pytest.raises(Refused, match="No such shift"):
            await shifts.require_own(CLUSTER_LOGIN, other)

    asyncio.run(story())


def test_a_run_of_another_deployment_can_not_be_taken(gate):
    train = gate.ask("GET", "/deployments/name/train/train")["id"]
    run = gate.ask("POST", f"/deployments/{train}/create_flow_run", {"state": {"type": "SCHEDULED"}})["id"]
    assert gate.call("ada", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "PENDING"}}).status_code == 404
    assert gate.state_of(run) == "SCHEDULED"


def test_a_poll_gives_one_run_and_never_an_answer_that_ends_the_worker(gate):
    runs = [gate.scheduled_shift() for _ in range(3)]
    for body in (
        {},
        {"limit": 200},
        {"limit": "x", "scheduled_before": "x", "work_queue_names": ["no such queue"]},
        [],
        "x",
        3,
    ):
        answer = gate.call("ada", "POST", "/work_pools/students/get_scheduled_flow_runs", body)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()) <= 1
    for pool in ("instructor", "nowhere"):
        answer = gate.call("ada", "POST", f"/work_pools/{pool}/get_scheduled_flow_runs", {"limit": 5})
        assert (answer.status_code, answer.json()) == (200, [])
    for run in runs:
        gate.end(run)
