"""The class as a service, over HTTP: two owners, a student without rights, and the instructor; a real database behind it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import psycopg
import pytest
import schemathesis
from classroom import Classroom
from conftest import clone_of
from core.test_foreign import JOB, TASK
from gated import HTTP, SECRETS, Service
from hypothesis import HealthCheck, given, settings
from pages import lines
from poll import wait_until
from schemathesis import GenerationMode
from schemathesis import checks as schemathesis_checks
from schemathesis.specs.openapi import checks as openapi_checks

from deployments.server.client import Class
from deployments.server.gate.runs import Refused
from deployments.server.service.rights import Caller
from gan_core.errors import StoreUnreachable, TrainingError
from gan_core.networks.generators import Generator, save
from gan_core.plan import Plan
from gan_core.scheduler.demand import Demand
from gan_core.scheduler.survey import Rules, look
from gan_core.settings import Settings
from gan_core.settings import settings as our_settings
from gan_core.store import student
from gan_core.store.coordinator import trainings
from gan_core.store.migrate import add_student
from gan_core.units import TrainingState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SMALL = {"generator_width": 4, "discriminator_width": 4, "batch_size": 8, "images_per_unit": 16, "quorum": 48}
SMALL |= {"iterations": 2, "latent_dim": 4, "evaluate_interval": 0, "codec": "float32"}


@pytest.fixture(scope="module")
def base(server) -> Iterator[str]:
    with clone_of(server) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for login, name in (("ada", "Ada L."), ("grace", "Grace H."), ("mallory", "M."), ("alan", "Alan T.")):
                add_student(connection, login, name)
        yield url


@pytest.fixture(scope="module")
def service(base, tmp_path_factory, prefect_home) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    more = {"CLASSGAN_DATABASE_URL": base, "CLASSGAN_OUTPUTS": str(folder / "outputs")}
    service = Service(folder, CLASSGAN_STUDENT_TRAININGS="3", **more)
    try:
        prefect_home(folder / "server")
        service.start()
        yield service
    finally:
        service.stop()


@pytest.fixture
def connection(base) -> Iterator[psycopg.Connection]:
    with psycopg.connect(base, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _end_all(connection) -> Iterator[None]:
    """What a test submitted takes no place from the next, and its machines do nothing for it."""
    yield
    connection.execute("TRUNCATE classgan.trainings, classgan.workers CASCADE")


def submit(service: Service, login: str, name: str, **demand) -> dict:
    return service.ok(login, "POST", "/trainings", {"name": name, "plan": SMALL, "demand": demand})


def test_the_whole_life_of_a_training(service, base, cache, connection):
    """Submitted, waiting with a reason, running with figures, paused, resumed, done, and all it left behind."""
    made = service.ask_as("ada", "POST", "/trainings", {"name": "Life", "plan": SMALL})
    assert made.status_code == 201
    assert made.headers["location"] == "/classgan/v1/trainings/life"
    status = made.json()
    assert (status["state"], status["position_in_queue"], status["name"]) == ("queued", 1, "life")
    assert "no worker was ever here" in status["message"]
    assert status["metadata"]["owner"] == "ada"
    assert status["metadata"]["plan"]["quorum"] == 48

    known = service.ask_as("ada", "GET", "/trainings/life")
    tag = {"since": known.headers["etag"]}
    assert service.ask_as("ada", "GET", "/trainings/life", params=tag).status_code == 304
    same = {"if-none-match": known.headers["etag"]}
    assert service.ask_as("ada", "GET", "/trainings/life", headers=same).status_code == 304

    assert "pauses" in service.ok("ada", "POST", "/trainings/life/pause")["message"]
    changed = service.ok("ada", "GET", "/trainings/life", params=tag | {"wait": 20})
    assert changed["state"] == "paused"
    assert "is paused, so there is nothing to pause" in service.refused(409, "ada", "POST", "/trainings/life/pause")
    assert service.ok("ada", "POST", "/trainings/life/resume")["state"] == "queued"
    assert "is queued: only a failed" in service.refused(409, "ada", "POST", "/trainings/life/retry")

    classroom = Classroom(base, cache)
    with classroom.working(1):
        wait_until(lambda: service.ok("grace", "GET", "/workers"), 20, "a worker")
        turn = look(connection, Rules())
        assert [call.name for call in turn.calls] == ["life"]
        classroom.train(Plan(**SMALL), "life")
    done = service.ok("ada", "GET", "/trainings/life")
    assert (done["state"], done["metrics"]["iteration"], done["metrics"]["iterations"]) == ("succeeded", 2, 2)
    assert done["metrics"]["last"]["number"] == 1
    assert done["position_in_queue"] is None

    first = service.ok("ada", "GET", "/trainings/life/metrics", params={"limit": 1})
    assert [row["number"] for row in first["items"]] == [0]
    rest = service.ok("ada", "GET", "/trainings/life/metrics", params={"after": first["next"]})
    assert [row["number"] for row in rest["items"]] == [1]
    assert rest["next"] is None
    assert rest["items"][0]["g_loss"] is not None

    said = [event["text"] for event in service.ok("ada", "GET", "/trainings/life/events")["items"]]
    assert said[0] == "Submitted by Ada L.."
    assert "Paused by Ada L.: it was queued." in said

    number = trainings.get(connection, "life").id
    trainings.save_sample(connection, number, 2, b"\x89PNG")
    state = classroom.train(Plan(**SMALL), "other-way", until=0).state
    save(service.folder / "outputs" / "life" / "generator.safetensors", Generator(Plan(**SMALL), state.average, 2, 96))
    listed = service.ok("ada", "GET", "/trainings/life/artifacts")["items"]
    assert [(a["kind"], a["iteration"]) for a in listed] == [("samples", 2), ("generator", None)]
    for artifact in listed:
        found = service.ask_as("ada", "GET", artifact["href"].removeprefix("/classgan/v1"))
        assert (found.status_code, found.headers["content-type"]) == (200, artifact["media_type"])
    assert "No samples" in service.refused(404, "ada", "GET", "/trainings/life/samples/7")


def test_the_client_submits_follows_and_reads(service):
    with (
        Class(service.url, "ada", SECRETS["ada"]) as mine,
        Class(service.url, "instructor", SECRETS["instructor"]) as led,
    ):
        assert mine.submit({"name": "by-client", "plan": SMALL}, key="k")["state"] == "queued"
        assert mine.submit({"name": "again", "plan": SMALL}, key="k")["name"] == "by-client"
        seen = mine.follow("by-client")
        assert next(seen)["state"] == "queued"
        assert "cancelled for good" in led.act("by-client", "cancel")
        assert [status["state"] for status in seen] == ["cancelled"]
        assert [t["name"] for t in mine.trainings(state="cancelled")] == ["by-client"]
        assert next(mine.events("by-client"))["text"] == "Submitted by Ada L.."
        assert list(mine.metrics("by-client")) == []
        with pytest.raises(TrainingError, match="has published no generator yet"):
            mine.save_generator("by-client", service.folder / "x.safetensors")
        with pytest.raises(TrainingError, match="Only the instructor"):
            mine.act("by-client", "move", after="other")
    with Class("http://127.0.0.1:9", "ada", "x") as nobody, pytest.raises(StoreUnreachable, match="does not answer"):
        nobody.status("by-client")


def test_a_failed_training_is_tried_again(service, connection):
    submit(service, "ada", "broken")
    trainings.set_state(connection, trainings.get(connection, "broken").id, TrainingState.FAILED, "the disk is full")
    assert "the disk is full" in service.ok("ada", "GET", "/trainings/broken")["message"]
    assert service.ok("ada", "POST", "/trainings/broken/retry")["state"] == "queued"
    assert service.ok("ada", "POST", "/trainings/broken/cancel")["state"] == "cancelled"
    assert "cancelled for good" in service.refused(409, "ada", "POST", "/trainings/broken/resume")


def test_what_is_somebody_elses_isnt_there(service, connection):
    """Every route of a training, for another owner; the instructor sees and does all."""
    submit(service, "ada", "hers")
    submit(service, "grace", "other")
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
        submit(service, "ada", name)
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
        submit(service, "mallory", name)
    over = service.refused(403, "mallory", "POST", "/trainings", {"name": "d", "plan": SMALL})
    assert "You have 3 trainings that run or wait, and a student may have 3" in over
    assert trainings.find(connection, "d") is None
    service.ok("mallory", "POST", "/trainings/b/pause")
    submit(service, "mallory", "d")
    assert "You have 3" in service.refused(403, "mallory", "POST", "/trainings/b/resume")
    assert trainings.get(connection, "b").state is TrainingState.PAUSED


def test_the_same_key_is_the_same_training(service):
    body, key = {"name": "keyed", "plan": SMALL}, {"headers": {"idempotency-key": "monday"}}
    assert service.ask_as("ada", "POST", "/trainings", body, **key).status_code == 201
    again = service.ask_as("ada", "POST", "/trainings", body | {"name": "renamed"}, **key)
    assert (again.status_code, again.json()["name"]) == (200, "keyed")
    assert "already" in service.refused(409, "grace", "POST", "/trainings", body, **key)


def test_the_samples_of_both_systems_guides_are_understood_and_say_why_not(service):
    """As they stand: an image classifier and a text classifier, which are no GANs. With a GAN in them, they are trained."""
    said = service.refused(422, "instructor", "POST", "/trainings", TASK)
    assert "model is 'resnet50', which is no GAN of this class: choose dcgan or spectral" in said
    assert "weight_decay (got '0.0001') has no counterpart" in said
    answer = service.ask_as("instructor", "POST", "/trainings", JOB).json()
    assert {"model", "data", "FC_SIZE", "learning_rate_g"} <= {fault["field"] for fault in answer["errors"]}
    missing = {"metadata": {k: v for k, v in JOB["metadata"].items() if k != "train_data_version_hash"}}
    assert "A job needs train_data_version_hash" in service.refused(422, "instructor", "POST", "/trainings", missing)

    params = {"model": "dcgan", "dataset": "mnist", "optimizer": "adam", "batch_size": "64", "momentum": "0.5"}
    task = service.ok("instructor", "POST", "/trainings", TASK | {"params": params})
    assert task["metadata"]["demand"]["gpus"] == 2
    assert "no worker was ever here" in task["message"] or "no machine that was ever here" in task["message"]
    job = JOB["metadata"] | {"algorithm": "dcgan", "dataset_id": "digits"}
    job |= {"parameters": {"LR": "0.004", "EPOCHS": "10", "PARALLEL_INSTANCES": "3"}}
    status = service.ok("instructor", "POST", "/trainings", {"metadata": job})
    assert (status["name"], status["metadata"]["demand"]["min_workers"]) == ("test1", 3)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "x", "plan": {"batch_size": 1}}, "batch_size: Input should be greater than or equal to 2 (got 1)"),
        ({"name": "x", "plan": "huge"}, "plan"),
        ({"name": "x", "demand": {"gpus": -1}}, "demand.gpus: Input should be greater than or equal to 0 (got '-1')"),
        ({"name": "x", "plan": {"data_version": "faces@1"}}, "There is no data version 'faces@1'"),
        ({"name": "!"}, "name is '!'"),
        ({"name": "x", "nonsense": 1}, "nonsense: Extra inputs are not permitted"),
        ([1], "the body"),
    ],
)
def test_impossible_values_are_named(service, body, said):
    assert said in service.refused(422, "instructor", "POST", "/trainings", body)


def test_who_may_not_submit_is_told_so(monkeypatch, connection):
    """As a class is until the instructor allows it; nor may one who is called like the account that runs the class."""
    assert Settings.model_fields["student_trainings"].default == 0
    for allowed, account, said in ((0, "root", "Students submit no trainings"), (3, "ada", "Ask for another login")):
        monkeypatch.setenv("CLASSGAN_STUDENT_TRAININGS", str(allowed))
        monkeypatch.setattr("getpass.getuser", lambda account=account: account)
        our_settings.cache_clear()
        with pytest.raises(Refused, match=said):
            Caller("ada").require_submission(connection, Plan(), Demand())
        Caller("instructor").require_submission(connection, Plan(data="folder:x"), Demand(priority=9))
    our_settings.cache_clear()


def test_a_database_that_is_away_is_told_with_when_to_ask_again(service, base, server):
    submit(service, "ada", "waits")
    name = psycopg.conninfo.conninfo_to_dict(base)["dbname"]
    with psycopg.connect(server.replace("/template?", "/postgres?"), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            answer = service.ask_as("ada", "GET", "/trainings/waits")
            said = service.refused(503, "ada", "POST", "/trainings/waits/cancel")
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "does not answer now. Nothing was changed" in said
    assert service.ok("ada", "GET", "/trainings/waits")["state"] == "queued"


def test_the_calls_on_the_page_work(service):
    """docs/service.md, with this class's address and without its certificate."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed: apt install curl")
    places = {"$CLASS": f"{service.url}/classgan/v1", "$LOGIN": f"ada:{SECRETS['ada']}"}
    called = [line for line in lines() if line.page == "docs/service.md" and line.words[0] == "curl"]
    assert len(called) > 5
    for line in called:
        assert line.words[1:3] == ("--cacert", "$PEM")
        words = [re.sub(r"^\$[A-Z]+", lambda m: places[m[0]], word) for word in line.words[3:]]
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail-with-body", *words], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"


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


def test_nobody_keeps_more_than_8_requests_open(service):
    """Each long poll looks at the database every second; nobody else waits for them, nor does the instructor."""
    submit(service, "alan", "watched")
    tag = service.ask_as("alan", "GET", "/trainings/watched").headers["etag"]

    def poll(_: int) -> httpx.Response:
        return service.ask_as("alan", "GET", "/trainings/watched", params={"since": tag, "wait": 4})

    with ThreadPoolExecutor(12) as threads:
        answers = threads.map(poll, range(12))
        assert service.ok("instructor", "GET", "/trainings/watched")["state"] == "queued"
        statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [304] * 8 + [429] * 4


def test_a_body_of_2_megabytes_is_refused(service):
    for login in ("ada", "instructor"):
        assert "bytes" in service.refused(413, login, "POST", "/trainings", {"name": "x" * 2_000_000})


def test_the_coordinators_log_is_the_instructors(service, connection):
    submit(service, "ada", "logged")
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


def test_the_description_is_complete_and_nothing_of_it_breaks_the_server(service, base):
    """schemathesis: whatever fits the OpenAPI document, and what nearly does, is answered as the document says."""
    submit(service, "ada", "digits-2")
    auth = ("instructor", SECRETS["instructor"])
    schema = schemathesis.openapi.from_url(f"{service.url}/classgan/v1/openapi.json", auth=auth)
    checks = [
        schemathesis_checks.not_a_server_error,
        openapi_checks.status_code_conformance,
        openapi_checks.content_type_conformance,
        openapi_checks.response_schema_conformance,
    ]
    tried = 0
    for operation in (result.ok() for result in schema.get_all_operations()):

        @settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE))
        def call(case):
            case.call_and_validate(auth=auth, timeout=60, checks=checks)

        call()
        tried += 1
    assert tried >= 20
