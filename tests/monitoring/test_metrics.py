"""Metrics for Prometheus: what they say, and who may read them."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from crowd import SECRETS, fill, metrics_in
from poll import wait_until
from prometheus_client import Metric
from systems import is_only_its_owners
from typer.testing import CliRunner

from deployments.cli import app
from deployments.cli.server.metrics import serve
from deployments.monitoring.collector import ClassCollector, exposition
from deployments.server.app import class_server
from deployments.server.class_file import SCRAPER, ClassFile
from deployments.server.gate import scrapes
from deployments.server.gate.scrapes import Scrapes
from gan_core.errors import StoreUnreachable
from gan_core.settings import settings
from gan_core.store.logins import hash_of
from gan_core.store.scheduler import submissions
from gan_core.store.viewers import metrics

AWAY = "postgresql://nobody@127.0.0.1:1/nothing"


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    (sample,) = [s for s in found[name.removesuffix("_total")].samples if s.name == name and s.labels == labels]
    return sample.value


def named(found: dict[str, Metric], name: str) -> list[str]:
    return [next(iter(s.labels.values())) for s in found[name].samples]


def test_they_say_how_the_class_is(database, connection, crowd):
    found = metrics_in(exposition(database)())
    assert value(found, "classgan_up") == 1
    assert value(found, "classgan_trainings", state="running") == 1
    assert value(found, "classgan_trainings", state="failed") == 0
    assert value(found, "classgan_training_state", training="faces", state="running") == 1
    assert value(found, "classgan_training_iteration", training="faces") == 30
    assert value(found, "classgan_training_images_total", training="faces") == 30 * 48
    assert value(found, "classgan_training_images_per_second", training="faces") == pytest.approx(24, rel=0.2)
    assert 1 < value(found, "classgan_training_loss", training="faces", network="generator") < 3
    assert 0 < value(found, "classgan_training_iteration_age_seconds", training="faces") < 60
    assert value(found, "classgan_training_quorum_images", training="faces") == 48
    assert value(found, "classgan_training_gathered_images", training="faces") == 0
    assert value(found, "classgan_training_units", training="faces", state="open") == 3
    assert [value(found, "classgan_workers", presence=p) for p in ("online", "idle", "offline")] == [10, 1, 1]
    assert value(found, "classgan_worker_images_per_second", worker="Ada Lovelace (laptop)") == 40
    assert value(found, "classgan_worker_gpu_memory_bytes", worker="Ada Lovelace (laptop)") == 15_360 * 2**20
    assert 0 <= value(found, "classgan_worker_silent_seconds", worker="Ada Lovelace (laptop)") < 60
    assert value(found, "classgan_contributions_total", verdict="accepted") == 30 * 12 - 36
    assert value(found, "classgan_contributed_images_total", verdict="refused") == 36 * 16
    assert value(found, "classgan_contributions_refused_ratio") == pytest.approx(0.1)
    assert value(found, "classgan_queue_trainings") == 1
    assert 3_600 <= value(found, "classgan_queue_longest_wait_seconds") < 3_700
    assert value(found, "classgan_queue_gpu_memory_bytes") == 40_000 * 2**20
    assert value(found, "classgan_checks_total", result="valid") == 5
    assert value(found, "classgan_checks_total", result="invalid") == 5
    assert value(found, "classgan_checks_waiting") == 0


def test_they_hold_display_names_and_nothing_that_is_nobodys_business(database, crowd):
    text = exposition(database)().decode()
    assert "Ada Lovelace" in text
    assert not [secret for secret in SECRETS if secret in text]


def test_labels_are_escaped_bounded_and_each_there_once(database, connection, tiny, monkeypatch):
    """Otherwise Prometheus would refuse all of it, or drown."""
    fill(connection, 8, 3, tiny)
    connection.execute("UPDATE classgan.students SET display_name = E'A \"quoted\" \\\\ back\\nslash' WHERE id % 2 = 0")
    for number in range(4):
        submissions.submit(connection, f"done-{number}", tiny.model_dump(mode="json"), {"gpus": 0, "memory_mb": 0, "min_workers": 1, "priority": 0, "max_workers": None}, owner="", key=f"{number}")  # fmt: skip
    connection.execute("UPDATE classgan.trainings SET state = 'cancelled' WHERE name LIKE 'done-%'")
    every = metrics_in(exposition(database)())
    names = named(every, "classgan_worker_silent_seconds")
    assert len(names) == len(set(names)) == 8
    assert sum(name.startswith('A "quoted" \\ back\nslash (laptop) #') for name in names) >= 3
    monkeypatch.setattr(metrics, "WORKERS", 3)
    monkeypatch.setattr(metrics, "TRAININGS", 2)
    few = metrics_in(exposition(database)())
    assert len(named(few, "classgan_worker_silent_seconds")) == 3
    assert value(few, "classgan_workers_unnamed") == 5
    assert named(few, "classgan_training_iteration") == [
        "faces",
        "done-3",
    ]  # what isn't over comes before what is newer
    assert value(few, "classgan_trainings", state="cancelled") == 4


def test_a_worker_whose_memory_ran_out_is_counted(database, connection, tiny):
    fill(connection, 3, 3, tiny)
    connection.execute(
        "UPDATE classgan.workers SET message = 'CUDA out of memory. Tried to allocate 2.00 GiB' WHERE name = 'login1-laptop'"
    )
    assert value(metrics_in(exposition(database)()), "classgan_workers_out_of_memory") == 1


def test_an_empty_class_has_metrics_too(database):
    found = metrics_in(exposition(database)())
    assert value(found, "classgan_queue_trainings") == 0
    assert value(found, "classgan_contributions_refused_ratio") == 0


def test_a_database_that_is_away_is_no_error():
    found = metrics_in(exposition(AWAY)())
    assert list(found) == ["classgan_up"]
    assert value(found, "classgan_up") == 0


def test_however_many_ask_it_is_read_once():
    looks = []

    def read() -> metrics.ClassMetrics:
        looks.append(1)
        raise StoreUnreachable("away")

    collector = ClassCollector(read, keep=60)
    threads = [threading.Thread(target=collector.collect) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(looks) == 1
    eager = ClassCollector(read, keep=-1)
    assert [eager.collect(), eager.collect()]
    assert len(looks) == 3


# Who may read them


async def prefect(scope: Any, receive: Any, send: Any) -> None:
    """Stands for Prefect's app: whoever gets an answer from it was let through."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"this is Prefect"})


prefect.api_app = prefect


def asked(
    login: tuple[str, str] | None,
    *requests: tuple[str, str],
    given: Scrapes | None = None,
    then: Callable[[], None] = lambda: None,
) -> list[httpx.Response]:
    """The class server's answers, one after the other; `then` is called before its threads are waited for."""

    async def ask() -> list[httpx.Response]:
        server = class_server(
            prefect,
            instructor_hash=hash_of("i"),
            student_hashes=lambda: {"ada": hash_of("a"), SCRAPER: hash_of("m")},
            inner_secret="inner",
            scrapes=given or Scrapes(lambda: b"classgan_up 1.0\n", hash_of("s")),
        )
        await server._logins.ask()  # as its start does
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(server), base_url="http://class", auth=login
        ) as client:
            answers = [await client.request(method, path) for method, path in requests]
        then()
        return answers

    return asyncio.run(ask())


@pytest.fixture
def at_once(monkeypatch) -> None:
    monkeypatch.setattr("deployments.server.app.FAILED_SECONDS", 0)
    monkeypatch.setattr("deployments.server.gate.logins.AGAIN", 0)


@pytest.mark.parametrize("login", [("instructor", "i"), (SCRAPER, "s")], ids=lambda login: login[0])
def test_the_instructor_and_prometheus_may_read_them(login):
    (answer,) = asked(login, ("GET", "/metrics"))
    assert answer.text == "classgan_up 1.0\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(("login", "status"), [(None, 401), ((SCRAPER, "wrong"), 401), (("ada", "s"), 401), (("ada", "a"), 403), ((SCRAPER, "m"), 403)])  # fmt: skip
def test_nobody_else_may_not_even_a_student_of_that_name(at_once, login, status):
    for answer in asked(login, ("GET", "/metrics"), ("HEAD", "/metrics"), ("POST", "/metrics")):
        assert answer.status_code == status
        assert "classgan_up" not in answer.text


def test_what_prometheus_logs_in_with_opens_nothing_else(at_once):
    tries = [("GET", "/api/flows/1"), ("POST", "/api/flow_runs/filter"), ("GET", "/api/admin/settings"), ("POST", "/metrics"), ("GET", "/metrics/"), ("GET", "/docs")]  # fmt: skip
    answers = asked((SCRAPER, "s"), *tries)
    assert [answer.status_code for answer in answers] == [401] * len(tries)


def test_a_database_that_hangs_holds_nobody_up():
    """The answer comes in time, others are served meanwhile, and however often it is asked, one thread waits."""
    release, reading = threading.Event(), []

    def hang() -> bytes:
        reading.append(1)
        release.wait(60)  # should it be waited for after all
        return b"classgan_up 1.0\n"

    given = Scrapes(hang, hash_of("s"), patience=0.05)
    requests = [("GET", "/metrics"), ("GET", "/api/flows/1"), ("GET", "/metrics")]
    metrics_, flows, again = asked(("instructor", "i"), *requests, given=given, then=release.set)
    assert flows.text == "this is Prefect"
    assert [value(metrics_in(a.content), "classgan_up") for a in (metrics_, again)] == [0, 0]
    assert len(reading) == 1


def test_what_the_gate_says_of_a_database_that_hangs_is_what_the_collector_says():
    assert value(metrics_in(scrapes.AWAY), "classgan_up") == 0


def test_the_secret_follows_from_the_instructors_and_is_another():
    class_file = ClassFile(addresses=("host",), port=1)
    assert class_file.scrape_secret == ClassFile.model_validate_json(class_file.model_dump_json()).scrape_secret
    assert class_file.scrape_secret not in (class_file.instructor_secret, class_file.inner_secret)
    assert len(class_file.scrape_secret) == 64


# The command


@pytest.fixture
def classgan(database, monkeypatch, tmp_path) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLASSGAN_DATABASE_URL", database)
    settings.cache_clear()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["metrics", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    yield run
    settings.cache_clear()


def test_the_command_prints_them_once(classgan, crowd):
    assert value(metrics_in(classgan().encode()), "classgan_training_iteration", training="faces") == 30


def test_served_here_they_are_for_this_machine_only(classgan, crowd, monkeypatch):
    from prometheus_client import start_http_server

    started = []

    def start(*arguments: Any) -> tuple[Any, threading.Thread]:
        server, thread = start_http_server(*arguments)
        started.append((server, thread))
        return server, thread

    monkeypatch.setattr("prometheus_client.start_http_server", start)
    serving = threading.Thread(target=serve, args=(0,))
    serving.start()
    server, _ = wait_until(lambda: started and started[0], 20, "the server")
    try:
        assert server.server_address[0] == "127.0.0.1"
        answer = httpx.get(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60)
        assert value(metrics_in(answer.content), "classgan_training_iteration", training="faces") == 30
    finally:
        server.shutdown()
        serving.join(20)
    assert not serving.is_alive()


def test_the_configuration_leads_to_the_class_and_bears_its_login(classgan, tmp_path):
    alone = yaml.safe_load(classgan("config", "--port", "9999"))
    assert alone["scrape_configs"] == [{"job_name": "classgan", "static_configs": [{"targets": ["127.0.0.1:9999"]}]}]
    class_file = ClassFile(addresses=("class.example",), port=4242)
    settings().home.mkdir(parents=True, exist_ok=True)
    class_file.save(settings().home)
    printed = classgan("config")  # into a file that everybody may read
    assert class_file.scrape_secret not in printed
    (job,) = yaml.safe_load(printed)["scrape_configs"]
    assert job["scheme"] == "https"
    assert job["basic_auth"]["username"] == SCRAPER
    secret = Path(job["basic_auth"]["password_file"])
    assert secret.read_text(encoding="utf-8") == class_file.scrape_secret
    assert is_only_its_owners(secret)
    assert job["static_configs"] == [{"targets": ["class.example:4242"]}]
    assert job["tls_config"]["ca_file"].endswith("class.pem")
