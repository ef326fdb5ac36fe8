"""`classgan status`, `leaderboard`, `my`, `monitor`, `events` and their JSON, against a real database."""

import io
import json
import os
import signal
import subprocess
import sys

import pytest
from crowd import fill
from poll import wait_until
from rich.console import Console
from systems import needs
from typer.testing import CliRunner

from deployments.cli import app, output
from deployments.cli.results import monitor, status
from deployments.cli.server import demo
from gan_core.settings import settings
from gan_core.store import student
from gan_core.store.engine import connect
from gan_core.store.scheduler import submissions
from gan_core.store.viewers import ledger


@pytest.fixture
def classgan(database, monkeypatch, tmp_path):
    """Runs a command in this process, into a pipe; returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, url: str = database) -> str:
        monkeypatch.setenv("CLASSGAN_DATABASE_URL", url)
        settings.cache_clear()
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    yield run
    settings.cache_clear()


@pytest.fixture
def one_look(monkeypatch):
    """Ctrl-C as soon as a live command would wait for its next look."""

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(monitor, "sleep", interrupt)


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 80 columns; returns what is on it."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=40, color_system=None, _environ={})
    for module in (output, status, monitor):
        monkeypatch.setattr(module, "console", console)
    return screen


def test_into_a_pipe_goes_plain_text_with_nothing_cut(classgan, connection, tiny, one_look):
    fill(connection, 12, 30, tiny)
    for command in ("status", "leaderboard", "events", "monitor"):
        said = classgan(command)
        assert not [mark for mark in "─│┃━\x1b…" if mark in said.replace("device: …", "")], command
    assert "No space left on device: /home/private/cache" in classgan("status")
    assert classgan("leaderboard").splitlines()[1].split()[:4] == ["1", "Ada", "Lovelace", "online"]
    assert classgan("monitor").startswith("faces · running · iteration 30 · loss G ")
    assert "10 of 12 machines online" in classgan("monitor")


def test_a_narrow_terminal_shows_every_figure_whole(classgan, connection, tiny, narrow, one_look):
    fill(connection, 12, 30, tiny)
    connection.execute(
        "UPDATE classgan.students SET display_name = 'Ada Augusta King, Countess of Lovelace' WHERE login = 'login0'"
    )
    connection.execute(
        "UPDATE classgan.contributions SET images = 1234567 WHERE worker_id = (SELECT min(id) FROM classgan.workers)"
    )
    for command in ("status", "leaderboard", "monitor"):
        narrow.truncate(narrow.seek(0))
        classgan(command)
        shown = narrow.getvalue()
        assert max(len(line) for line in shown.splitlines() if line.startswith(("│", "┃", "┏", "─"))) <= 80
        assert "37,037,010" in shown, command
        assert "online" in shown
        assert "Ada" in shown


@pytest.mark.parametrize(("path", "lines"), [("/tmp", 0), ("/" + "x" * 90, 1)])
def test_a_sentence_is_folded_between_words_in_a_terminal_unless_that_breaks_one(
    classgan, connection, tiny, narrow, path, lines
):
    fill(connection, 3, 30, tiny)
    message = f"{'no space left ' * 9}in {path}"
    connection.execute("UPDATE classgan.trainings SET state = 'failed', message = %s", (message,))
    classgan("status")
    shown = narrow.getvalue()
    assert len([line for line in shown.splitlines() if len(line) > 80]) == lines
    assert message in " ".join(shown.split())


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_monitor_ends_with_the_training(classgan, connection, tiny, monkeypatch, narrow, state):
    """It shows how the training ended, and goes on waiting for nothing."""
    fill(connection, 3, 30, tiny)

    def end(seconds: float) -> None:
        assert connection.execute("UPDATE classgan.trainings SET state = %s WHERE state = 'running'", (state,)).rowcount

    monkeypatch.setattr(monitor, "sleep", end)
    classgan("monitor")
    assert f"faces: {state}" in narrow.getvalue()
    assert "Ctrl-C ends it" not in narrow.getvalue().rpartition("faces: ")[2]
    looks = [json.loads(line) for line in classgan("monitor", "--json").splitlines()]
    assert [look["state"] for look in looks] == [state]


def test_the_demo_foresees_its_end_from_what_machines_do_once_they_are_ready(connection, tiny):
    """Six iterations of two seconds are left; the first one took 40 s longer, while programs were started."""
    plan = tiny.changed(iterations=10)
    fill(connection, 1, 4, plan)
    connection.execute("UPDATE classgan.iterations SET opened_at = opened_at - interval '40 seconds' WHERE number = 0")
    assert demo._left(connection, ledger.overview(connection, "faces"), plan) == "11 s to 12 s"
    connection.execute("DELETE FROM classgan.iterations WHERE number IN (1, 2)")
    assert demo._left(connection, ledger.overview(connection, "faces"), plan) == "not known yet"


def test_json_is_for_programs(classgan, connection, tiny, one_look):
    fill(connection, 3, 30, tiny)
    told = json.loads(classgan("status", "--json"))
    assert told["trainings"][0]["iteration"] == 30
    assert told["trainings"][0]["summary"].startswith("waiting for quorum")
    assert {worker["name"] for worker in told["workers"]} == {"login0-laptop", "login1-laptop", "login2-laptop"}
    board = json.loads(classgan("leaderboard", "--json"))
    assert board[0]["display_name"] == "Ada Lovelace"
    assert board[0]["images"] == 30 * 16
    (look,) = [json.loads(line) for line in classgan("monitor", "--json", "--worker", "Ada Lovelace").splitlines()]
    assert look["name"] == "faces"
    assert [m["student"] for m in look["machines"]] == ["Ada Lovelace"]
    assert look["machines"][0]["health"] == "ready, waits for units"
    lines = [json.loads(line) for line in classgan("events", "--json").splitlines()]
    assert [line["kind"] for line in lines] == ["silent", "given back", "suspended"]
    (first, *_) = json.loads(classgan("students", "list", "--json"))
    assert first["login"] == "login0"
    assert first["machines"] == 1
    assert "TOP-SECRET" not in classgan("students", "list", "--json")


def test_an_empty_class_is_no_error(classgan, connection):
    assert "No training yet" in classgan("status")
    assert "No students yet" in classgan("leaderboard")
    assert json.loads(classgan("leaderboard", "--json")) == []
    assert json.loads(classgan("status", "--json")) == {"trainings": [], "workers": []}
    assert classgan("events", "--json") == ""


def test_a_student_sees_what_is_theirs_over_their_own_login(classgan, connection, database, tiny):
    fill(connection, 3, 30, tiny)
    connection.execute("DROP ROLE IF EXISTS login1")
    connection.execute("CREATE ROLE login1 LOGIN IN ROLE classgan_student")
    connection.execute("UPDATE classgan.workers SET message = 'disk is full' WHERE name = 'login1-laptop'")
    mine = database.replace("//instructor@", "//login1@")
    try:
        said = classgan("my", url=mine)
        assert "480 images in 30 units, 36 s of computing: place 2 of 3." in said
        assert "login1-laptop, last message: disk is full" in said
        assert "login0" not in said
        told = json.loads(classgan("my", "--json", url=mine))
        assert (told["images"], told["place"], told["students"]) == (480, 2, 3)
        assert [m["machine"] for m in told["machines"]] == ["login1-laptop"]
        with connect(mine) as theirs:
            board = student.leaderboard(theirs)
        assert [(row.display_name, row.is_me) for row in board] == [
            ("Ada Lovelace", False),
            ("Student 1", True),
            ("Student 2", False),
        ]
    finally:
        connection.execute("DROP OWNED BY login1")
        connection.execute("DROP ROLE login1")


def test_one_machine_may_be_watched_by_its_name_its_login_or_its_students_name(classgan, connection, tiny, one_look):
    fill(connection, 12, 30, tiny)
    for name in ("login0-laptop", "login0", "Ada Lovelace"):
        assert "Ada Lovelace (laptop): 480 images, ready, waits for units" in classgan("monitor", "-w", name)


def test_the_monitor_shows_what_waits_and_why(classgan, connection, tiny, narrow, one_look):
    fill(connection, 3, 30, tiny)
    asked = {"gpus": 2, "memory_mb": 0, "min_workers": 1, "priority": 0, "max_workers": None}
    for number in range(7):
        name = f"waits-{number}"
        submissions.submit(connection, name, tiny.model_dump(mode="json"), asked, owner="ada", key=name)
    classgan("monitor", "faces")
    shown = narrow.getvalue()
    assert "1. waits-0: no machine of this class has 2 GPUs" in shown
    assert "5. waits-4" in shown
    assert "waits-5" not in shown
    assert "… and 2 more wait: classgan queue" in shown
    (look,) = [json.loads(line) for line in classgan("monitor", "faces", "--json").splitlines()]
    assert [r["name"] for r in look["queue"]] == [f"waits-{number}" for number in range(7)]


@needs("Ctrl-C for a single process")
def test_ctrl_c_ends_the_monitor_quietly(connection, database, tiny):
    fill(connection, 1, 5, tiny)
    watching = subprocess.Popen(
        [sys.executable, "-P", "-m", "deployments.cli", "monitor", "--json", "--refresh", "0.2"],
        env={**os.environ, "CLASSGAN_DATABASE_URL": database},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    looks: list[str] = []
    wait_until(lambda: looks.append(watching.stdout.readline()) or len(looks) == 2, 60, "two looks")
    assert [json.loads(look)["name"] for look in looks] == ["faces", "faces"]
    watching.send_signal(signal.SIGINT)
    _, complaints = watching.communicate(timeout=30)
    assert (watching.returncode, complaints) == (0, "")
