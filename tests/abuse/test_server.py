"""What a student can do at the class server, and what not: a real Prefect behind the gate, real workers, real abuse."""

import asyncio
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import psutil
import psycopg
import pytest
from gated import HTTP, INNER, SECRETS, STUDENTS, Gate, event, sha256
from poll import wait_until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from deployments.prefect_settings import PREFECT
from deployments.server.app import SOCKETS
from deployments.server.gate.logins import Logins
from gan_core.store.migrate import add_student

REFUSED = 1008  # a websocket's code for "policy violation": closed on purpose, not a server that never answers
AGAIN_LATER = 1011  # "internal error": a worker of Prefect's comes again, which it never does after the other one

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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


def routes(gate: Gate) -> list[tuple[str, str]]:
    paths = HTTP.get(f"{gate.url}/api/openapi.json", auth=("instructor", SECRETS["instructor"])).json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def filled(path: str, run: str) -> str:
    """A path of OpenAPI's with something in each place that exists, as far as that can be."""
    path = path.replace("{work_pool_name}", "students").replace("/work_pools/{name}", "/work_pools/students")
    return re.sub(r"\{(\w+)\}", lambda place: run if "id" in place[1] else "shift", path)


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
        with pytest.raises(ConnectionClosed) as closed, gate.socket(login, path, secret) as socket:
            socket.recv(timeout=30)
        assert closed.value.rcvd.code == REFUSED, path


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
            socket.recv(timeout=30)


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
        with pytest.raises(ConnectionClosed) as closed, gate.socket("ada", path) as socket:
            socket.recv(timeout=30)
        assert closed.value.rcvd.code == REFUSED, path


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
        with httpx.Client(timeout=60) as client:
            assert client.send(request).status_code in (401, 403, 404, 405)


def basic(login: str) -> str:
    import base64

    return "Basic " + base64.b64encode(f"{login}:{SECRETS[login]}".encode()).decode()


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
    with httpx.Client(base_url=f"{gate.url}/api", auth=("mallory", SECRETS["mallory"]), timeout=60) as client:
        answers = [client.get("/csrf-token").status_code for _ in range(1_000)]
    assert set(answers) == {422, 429}
    poll = gate.call("mallory", "POST", "/work_pools/students/get_scheduled_flow_runs", {})
    assert poll.status_code in (200, 429)
    assert gate.call("ada", "GET", "/admin/version").status_code == 200


def test_websockets_are_counted_and_their_frames_limited(gate):
    with gate.socket("ada", "/events/in") as socket:
        socket.send(json.dumps(event("x", "x" * 100_000)))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)
    with ExitStack() as open_sockets:
        for _ in range(SOCKETS):
            open_sockets.enter_context(gate.socket("mallory", "/events/in"))
        with pytest.raises(ConnectionClosed) as closed:
            open_sockets.enter_context(gate.socket("mallory", "/events/in"))
        assert closed.value.rcvd.code == AGAIN_LATER
        with gate.socket("grace", "/events/in"):
            pass


def test_who_is_taken_out_is_out_at_once_and_a_database_that_is_away_changes_nothing(gate):
    with gate.socket("mallory", "/events/in") as socket, gate.socket("ada", "/events/in") as other:
        gate.admit("ada", "grace", "alan")
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)
        assert HTTP.get(f"{gate.url}/api/admin/version", auth=("mallory", SECRETS["mallory"])).status_code == 401
        (gate.folder / "students.json").unlink()  # now asking who may come in fails
        with pytest.raises(TimeoutError):
            other.recv(timeout=2)
        assert gate.call("ada", "GET", "/admin/version").status_code == 200
    gate.admit_all()


# And the class works


def test_whoever_was_let_in_a_moment_ago_comes_in_however_lately_we_looked_and_guesses_cost_one_look_a_second():
    """An invite is good at once: 401 would end the machine that tries it."""
    students, looks = {"grace": sha256("hers")}, []

    def look() -> dict[str, str]:
        looks.append(dict(students))
        return looks[-1]

    async def arrive() -> None:
        logins = Logins(sha256("the instructor's"), look)
        await logins.ask()
        students["ada"] = sha256("mine")
        guesses = [logins.admit("ada", f"guess {n}") for n in range(100)]
        ada, *others = await asyncio.gather(logins.admit("ada", "mine"), *guesses)
        assert ada is not None
        assert ada.login == "ada"
        assert others == [None] * 100
        assert len(looks) == 2

    asyncio.run(arrive())


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
        wait_until(lambda: gate.state_of(run) == "COMPLETED", 120, f"the shift; see {gate.folder / 'worker.log'}")
        done = gate.ask("GET", f"/flow_runs/{run}")
        assert done["name"].startswith("shift of grace")
        wanted = {"logs": {"flow_run_id": {"any_": [run]}}}
        wait_until(lambda: gate.ask("POST", "/logs/filter", wanted), 30, "its log")
        (artifact,) = gate.ask("POST", "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        assert "0 units" in artifact["data"]
        workers = gate.ask("POST", "/work_pools/students/workers/filter", {"workers": {"status": {"any_": ["ONLINE"]}}})
        assert "grace" in {one["name"] for one in workers}

        run = gate.scheduled_shift(parameters={"idle_seconds": 600})
        wait_until(lambda: gate.state_of(run) == "RUNNING", 60, "the second shift")
        gate.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
        wait_until(lambda: gate.state_of(run) == "CANCELLED", 60, "the end of the cancelled shift")

        gate.admit("ada", "alan", "mallory")
        assert worker.wait(30) != 0
        assert "refuses this login" in (gate.folder / "worker.log").read_text(encoding="utf-8")
    finally:
        worker.kill()
        worker.wait()
        gate.admit_all()


def test_the_instructors_command_works_through_the_gate(gate):
    assert "shift" in gate.prefect("instructor", "deployment", "ls")
    assert "students" in gate.prefect("instructor", "work-pool", "ls")
