"""What a student can do at the class server, and what not: a real Prefect behind the gate, real workers, real abuse."""

import json
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
from gated import HTTP, INNER, SECRETS, STUDENTS, Gate, event
from poll import wait_until
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from deployments.gate.runs import OPEN_RUNS
from deployments.prefect_settings import PREFECT
from deployments.server import SOCKETS
from gan_core.store.migrate import add_student
from tasks.supply_shifts import top_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SHUT = (401, 403, 404)  # 404: what isn't yours isn't there

# Prefect's routes that a student's worker and shifts need. Whatever else Prefect has, or will have, is shut.
NEEDED = {
    ("GET", "/csrf-token"),
    ("GET", "/admin/version"),
    ("GET", "/admin/storage"),
    ("GET", "/work_pools/{name}"),
    ("POST", "/work_pools/{work_pool_name}/queues/filter"),
    ("POST", "/work_pools/{name}/get_scheduled_flow_runs"),
    ("POST", "/work_pools/{work_pool_name}/workers/heartbeat"),
    ("GET", "/work_queues/{id}"),
    ("GET", "/deployments/{id}"),
    ("GET", "/flows/{id}"),
    ("POST", "/flow_runs/filter"),
    ("GET", "/flow_runs/{id}"),
    ("PATCH", "/flow_runs/{id}"),
    ("PATCH", "/flow_runs/{id}/labels"),
    ("POST", "/flow_runs/{id}/set_state"),
    ("POST", "/logs/"),
    ("POST", "/artifacts/"),
    ("PATCH", "/artifacts/{id}"),
}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory, prefect_home: Callable[[Path], None]) -> Iterator[Gate]:
    gate = Gate(tmp_path_factory.mktemp("gate"))
    try:
        prefect_home(gate.folder / "server")
        gate.start()
        gate.deploy()
        yield gate
    finally:
        gate.stop()


@pytest.fixture(scope="module")
def theirs(gate: Gate) -> str:
    """A run that grace has taken and runs."""
    return gate.taken_shift("grace")


def routes(gate: Gate) -> list[tuple[str, str]]:
    paths = HTTP.get(f"{gate.url}/api/openapi.json", auth=("instructor", SECRETS["instructor"])).json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def filled(path: str, run: str) -> str:
    """A path of OpenAPI's with something in each place that exists, as far as that can be."""
    path = path.replace("{work_pool_name}", "students").replace("/work_pools/{name}", "/work_pools/students")
    return re.sub(r"\{(\w+)\}", lambda place: run if "id" in place[1] else "shift", path)


def state_of(gate: Gate, run: str) -> str:
    return gate.ask("GET", f"/flow_runs/{run}")["state_type"]


# Nobody gets in without a login


def test_without_a_login_there_is_health_and_the_page_that_asks_for_one(gate, theirs):
    answered = set()
    for method, path in routes(gate):
        answer = HTTP.request(method, f"{gate.url}/api{filled(path, theirs)}", json={})
        if answer.status_code != 401:
            answered.add((method, path))
    assert answered == {("GET", "/health"), ("GET", "/ready")}
    for path in ("/docs", "/redoc", "/openapi.json", "/api/openapi.json", "/api/docs", "/api", "/metrics"):
        assert HTTP.get(f"{gate.url}{path}").status_code == 401
    page = HTTP.get(gate.url, follow_redirects=True, headers={"accept": "text/html"})
    assert page.status_code == 200
    assert "<script" in page.text
    assert HTTP.get(f"{gate.url}/ui-settings").json()["auth"] == "BASIC"
    assert HTTP.post(f"{gate.url}/ui-settings").status_code == 401


@pytest.mark.parametrize(
    ("login", "secret"),
    [
        ("ada", "wrong"),
        ("ada", ""),
        ("ada", SECRETS["grace"]),
        ("instructor", SECRETS["ada"]),
        ("nobody", ""),
        ("", ""),
        ("", INNER),
        ("prefect", INNER),
    ],
)
def test_a_wrong_login_is_refused_over_http_and_over_websockets(gate, login, secret):
    assert HTTP.get(f"{gate.url}/api/admin/version", auth=(login, secret)).status_code == 401
    for path in ("/events/in", "/events/out", "/work_pools/students/workers/connect"):
        with pytest.raises((ConnectionClosed, TimeoutError)), gate.socket(login, path, secret) as socket:
            socket.recv(timeout=5)


def test_the_inner_secret_by_itself_opens_nothing(gate):
    for credential in (INNER, f":{INNER}", f"{INNER}:"):
        login, _, secret = credential.partition(":")
        assert HTTP.get(f"{gate.url}/api/flows/count", auth=(login, secret)).status_code in (401, 405)


@pytest.mark.parametrize(
    "first", ['{"type": "auth", "token": null}', '{"type": "auth"}', '"auth"', "{}", "not json", "[" * 30_000, b"\x00"]
)
def test_a_websocket_that_does_not_begin_with_a_login_is_closed(gate, first):
    with connect(f"{gate.url.replace('http', 'ws')}/api/events/in", subprotocols=["prefect"]) as socket:
        socket.send(first)
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=10)


def test_wrong_logins_by_the_hundred_lock_nobody_out(gate):
    """They wait for their answers, each of them; ada doesn't."""
    before = time.monotonic()
    guesses = [
        threading.Thread(target=gate.call, args=("ada", "GET", "/admin/version", None, f"guess {n}"))
        for n in range(150)
    ]
    for guess in guesses:
        guess.start()
    assert gate.call("ada", "GET", "/admin/version").status_code == 200
    for guess in guesses:
        guess.join()
    assert time.monotonic() - before > 1
    assert gate.call("ada", "GET", "/admin/version").status_code == 200


# A student does what a worker does, and nothing else


def test_every_route_of_prefect_that_a_worker_does_not_need_is_shut_to_students(gate, theirs):
    """All of them, from Prefect's own description: a new version's new routes are tried by themselves."""
    known = routes(gate)
    assert len(known) > 150
    assert set(known) >= NEEDED
    shut = [route for route in known if route not in NEEDED | {("GET", "/health"), ("GET", "/ready")}]
    bodies = ({}, {"flow_runs": {}}, [])
    for number, (method, path) in enumerate(shut):
        request = STUDENTS[number % 3], method, filled(path, theirs), bodies[number % 3]
        answer = wait_until(lambda request=request: (a := gate.call(*request)).status_code != 429 and a, 10, "its turn")
        assert answer.status_code == 403, f"{method} {path}: {answer.status_code} {answer.text}"


def test_every_websocket_of_prefect_that_a_worker_does_not_need_is_shut_to_students(gate):
    from prefect.server.api.server import API_ROUTERS
    from starlette.routing import WebSocketRoute

    known = {route.path for router in API_ROUTERS for route in router.routes if isinstance(route, WebSocketRoute)}
    assert known > {"/events/in", "/events/out", "/work_pools/{work_pool_name}/workers/connect"}
    needed = {"/events/in", "/events/out", "/work_pools/students/workers/connect"}
    tried = {path.replace("{work_pool_name}", pool) for path in known for pool in ("students", "instructor", "new")}
    for path in tried - needed:
        with pytest.raises((ConnectionClosed, TimeoutError)), gate.socket("ada", path) as socket:
            socket.recv(timeout=5)


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


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/deployments/{shift}/create_flow_run", {"job_variables": {"command": "touch x", "env": {"A": "b"}}}),
        ("POST", "/deployments/{train}/create_flow_run", {"job_variables": {"command": "touch x"}}),
        ("PATCH", "/deployments/{shift}", {"entrypoint": "os.system", "pull_steps": []}),
        ("PATCH", "/work_pools/students", {"base_job_template": {}}),
        ("POST", "/block_documents/filter", {"include_secrets": True}),
        ("GET", "/block_types/", None),
        ("POST", "/variables/filter", {}),
        ("PUT", "/admin/storage", {}),
        ("GET", "/admin/settings", None),
        ("POST", "/automations/", {}),
        ("POST", "/events", [event("prefect.flow-run.Crashed", "prefect.flow-run.x")]),
        ("POST", "/logs/filter", {}),
        ("POST", "/task_runs/", {}),
        ("DELETE", "/work_pools/students", None),
    ],
)
def test_the_known_ways_to_anothers_machine_and_secrets_are_shut(gate, method, path, body):
    for name in ("shift", "train"):
        flow = "gradient-compute" if name == "shift" else name
        path = path.replace(f"{{{name}}}", gate.ask("GET", f"/deployments/name/{flow}/{name}")["id"])
    assert gate.call("ada", method, path, body).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/flow_runs/../deployments/filter",
        "//deployments/filter",
        "/logs/../variables/filter",
        "/work_pools/students%2F..%2Finstructor",
        "/work_pools/students/",
        "/flow_runs/filter/",
        "/flow_runs/{run}/set_state/x",
        "/flow_runs/{run}\n",
    ],
)
def test_paths_that_mean_something_else_further_in_are_shut(gate, theirs, path):
    raw = path.replace("{run}", theirs).replace("\n", "%0A")
    for method in ("GET", "POST"):
        request = httpx.Request(method, gate.url, json={}, headers={"authorization": basic("ada")})
        request.url = request.url.copy_with(raw_path=f"/api{raw}".encode())
        with httpx.Client() as client:
            assert client.send(request).status_code in (401, 403, 404, 405)


def basic(login: str) -> str:
    import base64

    return "Basic " + base64.b64encode(f"{login}:{SECRETS[login]}".encode()).decode()


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
    assert after["infrastructure_pid"] == "123"
    assert len(after["flow_version"]) == 100
    for kept in ("tags", "parameters", "job_variables", "empirical_policy"):
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
    assert state_of(gate, run) == "SCHEDULED"
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
    (found,) = gate.call("ada", "POST", "/work_pools/students/get_scheduled_flow_runs", {}).json()
    for run in (*hoarded, found["flow_run"]["id"]):
        gate.end(run)


def test_a_run_of_another_deployment_can_not_be_taken(gate):
    train = gate.ask("GET", "/deployments/name/train/train")["id"]
    run = gate.ask("POST", f"/deployments/{train}/create_flow_run", {"state": {"type": "SCHEDULED"}})["id"]
    assert gate.call("ada", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "PENDING"}}).status_code == 404
    assert state_of(gate, run) == "SCHEDULED"


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


# Events, logs, artifacts


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
    assert state_of(gate, mine) == "RUNNING"


def events(gate: Gate) -> list[dict]:
    names = ["prefect.flow-run.heartbeat", "prefect.worker.stopped", "ada.made.this.up"]
    wanted = {"event": {"name": names}, "occurred": {"since": "2019-01-01T00:00:00Z"}}
    return gate.ask("POST", "/events/filter", {"filter": wanted, "limit": 50})["events"]


def test_a_student_hears_of_their_own_runs_only(gate, theirs):
    mine, hers = gate.taken_shift("ada"), gate.taken_shift("grace")
    with gate.socket("ada", "/events/out") as socket:
        socket.send(json.dumps({"type": "filter", "filter": {"event": {"prefix": [""]}}}))

        # Her own is cancelled last: what came before it is all there is.
        def cancel(run: str) -> None:
            gate.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})

        cancel(hers)
        cancel(mine)
        heard = json.loads(socket.recv(timeout=30))["event"]
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


# The class at a stand


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_100_megabytes_is_refused_and_not_kept(gate, announced):
    server = psutil.Process(gate.process.pid)
    before = server.memory_info().rss

    def body() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1_000_000

    headers = {"content-length": "100000000"} if announced else {}
    try:
        answer = HTTP.post(
            f"{gate.url}/api/logs/", content=body(), headers=headers, auth=("ada", SECRETS["ada"]), timeout=60
        )
        assert answer.status_code == 413
    except (httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):
        pass  # the server hung up in the middle: refused all the same
    assert server.memory_info().rss - before < 30_000_000
    assert gate.call("grace", "GET", "/admin/version").status_code == 200


def test_a_body_that_is_no_json_or_a_bomb_is_refused(gate):
    for body in (b"{", b"[" * 500_000, b'"x"', b"\xff\xfe", b"5"):
        answer = HTTP.post(f"{gate.url}/api/logs/", content=body, auth=("ada", SECRETS["ada"]))
        assert answer.status_code == 400


def test_whoever_floods_is_slowed_down_and_nobody_else(gate):
    with httpx.Client(base_url=f"{gate.url}/api", auth=("mallory", SECRETS["mallory"])) as client:
        answers = [client.get("/csrf-token").status_code for _ in range(1_000)]
    assert set(answers) == {422, 429}
    poll = gate.call("mallory", "POST", "/work_pools/students/get_scheduled_flow_runs", {})
    assert poll.status_code in (200, 429)
    assert gate.call("ada", "GET", "/admin/version").status_code == 200


def test_websockets_are_counted_and_their_frames_limited(gate):
    with gate.socket("ada", "/events/in") as socket:
        socket.send(json.dumps(event("x", "x" * 100_000)))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=10)
    with ExitStack() as open_sockets:
        for _ in range(SOCKETS):
            open_sockets.enter_context(gate.socket("mallory", "/events/in"))
        with pytest.raises(ConnectionClosed):
            open_sockets.enter_context(gate.socket("mallory", "/events/in"))
        with gate.socket("grace", "/events/in"):
            pass


def test_who_is_taken_out_is_out_at_once_and_a_database_that_is_away_changes_nothing(gate):
    with gate.socket("mallory", "/events/in") as socket, gate.socket("ada", "/events/in") as other:
        gate.admit("ada", "grace", "alan")
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=10)
        assert HTTP.get(f"{gate.url}/api/admin/version", auth=("mallory", SECRETS["mallory"])).status_code == 401
        (gate.folder / "students.json").unlink()  # now asking who may come in fails
        with pytest.raises(TimeoutError):
            other.recv(timeout=2)
        assert gate.call("ada", "GET", "/admin/version").status_code == 200
    gate.admit_all()


# And the class works


def test_after_a_restart_nobody_is_told_that_their_login_is_wrong_and_whose_a_run_is_is_still_known(gate):
    """A worker ends at 401; while it isn't known who the students are it must wait instead."""
    mine, hers = gate.taken_shift("ada"), gate.taken_shift("grace")
    gate.stop()
    (gate.folder / "students.json").unlink()  # the database is away
    gate.start()
    for login, secret in (("ada", SECRETS["ada"]), ("ada", "wrong")):
        assert HTTP.get(f"{gate.url}/api/admin/version", auth=(login, secret)).status_code == 503
    assert gate.call("instructor", "GET", "/admin/version").status_code == 200
    gate.admit_all()
    assert gate.call("ada", "GET", f"/flow_runs/{hers}").status_code == 403
    assert gate.call("ada", "POST", f"/flow_runs/{hers}/set_state", {"state": {"type": "FAILED"}}).status_code == 403
    ended = gate.call("ada", "POST", f"/flow_runs/{mine}/set_state", {"state": {"type": "COMPLETED"}})
    assert ended.json()["status"] == "ACCEPT"


@pytest.mark.rehearsal  # tests/acceptance/test_joining.py does it with TLS
def test_a_students_worker_works_a_shift_through_the_gate(gate, database):
    """The stock command, with the login in PREFECT_API_AUTH_STRING. A shift without a training ends by itself."""
    for run in gate.ask("POST", "/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}):
        gate.end(run["id"])
    with psycopg.connect(database, autocommit=True) as connection:
        add_student(connection, "grace")
    run = gate.scheduled_shift(parameters={"idle_seconds": 1, "max_minutes": 1})
    with (gate.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [*PREFECT, "worker", "start", "--pool", "students"],
            env=gate.client_environment(
                "grace",
                CLASSGAN_HOME=str(gate.folder / "classgan"),
                CLASSGAN_DATABASE_URL=database.replace("//instructor@", "//grace@"),
            ),
            stdout=log,
            stderr=log,
            cwd=gate.folder,
        )
    try:
        wait_until(lambda: state_of(gate, run) == "COMPLETED", 120, f"the shift; see {gate.folder / 'worker.log'}")
        done = gate.ask("GET", f"/flow_runs/{run}")
        assert done["name"].startswith("shift of grace")
        wanted = {"logs": {"flow_run_id": {"any_": [run]}}}
        wait_until(lambda: gate.ask("POST", "/logs/filter", wanted), 30, "its log")
        (artifact,) = gate.ask("POST", "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        assert "0 units" in artifact["data"]
        workers = gate.ask("POST", "/work_pools/students/workers/filter", {"workers": {"status": {"any_": ["ONLINE"]}}})
        assert "grace" in {one["name"] for one in workers}

        run = gate.scheduled_shift(parameters={"idle_seconds": 600})
        wait_until(lambda: state_of(gate, run) == "RUNNING", 60, "the second shift")
        gate.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
        wait_until(lambda: state_of(gate, run) == "CANCELLED", 60, "the end of the cancelled shift")

        gate.admit("ada", "alan", "mallory")
        assert worker.wait(30) != 0
        assert "refuses this login" in (gate.folder / "worker.log").read_text()
    finally:
        worker.kill()
        worker.wait()
        gate.admit_all()


def test_the_instructors_command_works_through_the_gate(gate):
    assert "shift" in gate.prefect("instructor", "deployment", "ls")
    assert "students" in gate.prefect("instructor", "work-pool", "ls")
