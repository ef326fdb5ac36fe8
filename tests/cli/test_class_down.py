"""Commands on a class that isn't up, or not yet: one sentence, the same everywhere, with the next step."""

import os
import subprocess

import psycopg
import pytest
from typer.testing import CliRunner

from deployments.cli import app
from deployments.local.notes import Illness, Notes, identity
from deployments.local.postgres import MAJOR, Postgres, _binaries
from gan_core.errors import GanError, SchemaOutdated, StackError
from gan_core.settings import settings
from gan_core.store.engine import connect
from gan_core.store.migrate import migrate
from gan_core.store.scheduler import submissions
from gan_core.store.viewers import watching

ABOUT_WHAT_GOES_ON = (
    ["status"],
    ["queue"],
    ["events"],
    ["workers"],
    ["submit", "demo", "--name", "another"],
    ["explain", "waits"],
    ["priority", "waits", "3"],
    ["queue", "move", "waits", "--top"],
    ["change", "waits", "--set", "quorum=3750"],
    ["pause", "waits"],
    ["cancel", "waits"],
)


@pytest.fixture(scope="module")
def data(tmp_path_factory, tiny):
    """The folder of a class that has ended, with a training in its queue."""
    home = tmp_path_factory.mktemp("class")
    server = Postgres(home / "postgres")
    server.start()
    try:
        migrate(server.url())
        demand = {"gpus": 0, "memory_mb": 0, "min_workers": 1, "priority": 0, "max_workers": None}
        with connect(server.url()) as connection:
            submissions.submit(connection, "waits", tiny.model_dump(mode="json"), demand, owner="ada", key="")
    finally:
        server.stop()
    return home


@pytest.fixture
def classgan(monkeypatch):
    """Runs a command on the class in a folder; returns what it printed, and what it said beside that."""

    def run(home, *words: str) -> tuple[str, str]:
        monkeypatch.setenv("CLASSGAN_HOME", str(home))
        settings.cache_clear()
        done = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
        if done.exception is not None:
            assert isinstance(done.exception, GanError), done.output
            return "", str(done.exception)
        return done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_with_the_class_down_every_command_about_what_goes_on_says_so_in_the_same_words(classgan, data):
    sentence = f"No class runs in {data}, so nothing moves there. Start it: `classgan up` (or `make up`)."
    for words in ABOUT_WHAT_GOES_ON:
        printed, beside = classgan(data, *words)
        assert beside == f"{sentence}\n", words
        assert printed
    assert classgan(data, "resume", "waits") == ("", sentence)
    assert classgan(data, "runs", "list")[1] == ""  # that is about what was


def test_a_class_that_is_just_being_started_is_waited_for(classgan, tmp_path):
    """Its tables may not be there yet, nor PostgreSQL's socket: that was a traceback, or a database at None:5432."""
    Notes(owner=identity(os.getpid()), database="postgresql://instructor@/classgan?host=None").write(tmp_path)
    for words in ABOUT_WHAT_GOES_ON:
        beside = classgan(tmp_path, *words)[1]
        assert beside == f"The class in {tmp_path} is just being started. Wait some seconds, then try again."


def test_an_ill_part_is_named_beside_what_a_command_prints(classgan, database, tmp_path):
    illness = Illness(part="instructor", since="2026-11-29T12:00:00+00:00", ends=2, log="/logs/instructor.log")
    Notes(owner=identity(os.getpid()), database=database, is_up=True, ill=[illness]).write(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Postgres, "url", lambda *_: database)
        assert classgan(tmp_path, "status") == (
            "No training yet. Start one in the Prefect UI (deployment `train`), or with `classgan demo`.\n",
            f"{illness.sentence()}\n",
        )


@pytest.mark.parametrize("door", [connect, watching.viewer])
def test_what_the_database_refuses_is_a_sentence_with_the_next_step(database, door):
    """Whatever opened the connection, and however deep the statement lies."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA classgan CASCADE; DROP SCHEMA IF EXISTS watch CASCADE")
    table = "classgan.trainings" if door is connect else "watch.trainings"
    with pytest.raises(SchemaOutdated, match=r"has no tables of this version: .* Run `classgan migrate`"):  # noqa: SIM117
        with door(database) as opened:
            opened.execute(f"SELECT 1 FROM {table}")


def test_an_embedded_server_that_looks_on_is_named_to_whoever_starts_the_class(tmp_path):
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deployments.local.postgres._is_alive", lambda _: True)
        with pytest.raises(StackError, match=r"such as `classgan dashboard`\. End it first"):
            Postgres(tmp_path / "postgres").launch()


def test_data_of_another_postgresql_is_left_alone_with_a_sentence(tmp_path):
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("16\n", encoding="ascii")
    with pytest.raises(StackError, match=r"is that of PostgreSQL 16, and classgan's own is 18.*pg_upgrade"):
        Postgres(tmp_path / "postgres").launch()
    assert [path.name for path in (tmp_path / "postgres").iterdir()] == ["PG_VERSION"]


def test_the_version_that_is_expected_is_the_wheels():
    said = subprocess.run([_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    assert f" {MAJOR}." in said
