"""A stack on a machine where others are at home as well: their ports, and processes that only look like its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from systems import is_only_its_owners, needs

from deployments.cli.server.up import class_of, terminated_as_interrupt, typed
from deployments.local.postgres import Postgres, _short_folder
from deployments.local.processes import endings, is_gone
from deployments.local.stack import STACK, LocalStack
from gan_core.errors import StackError
from gan_core.settings import settings
from gan_core.store.engine import connect


class Served(Exception):
    """The stack has started its server once more."""


@contextmanager
def stranger(answer: bytes) -> Generator[int]:
    """The port of a server that says the same to everyone."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was closed
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_what_holds_secrets_is_only_its_owners(tmp_path):
    """Logs, and Prefect's database with its Secret blocks; others on the machine may know the paths."""
    stack = LocalStack(tmp_path / "home", tmp_path / "outputs")
    stack._make_folders()
    for folder in (stack.logs, Path(stack.environment()["PREFECT_HOME"])):
        assert is_only_its_owners(folder)


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example.edu ESMTP\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n<html>It works!</html>",
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b'HTTP/1.0 200 OK\r\n\r\n{"home": "/home/somebody/.prefect"}',
        b"HTTP/1.0 404 Not Found\r\n\r\n",
    ],
    ids=["no HTTP", "no JSON", "a list", "another Prefect", "not found"],
)
def test_a_server_of_somebody_else_is_not_taken_for_ours(tmp_path, monkeypatch, answer):
    """It took the port between our choice and our server's start, which therefore ended: another port is tried."""
    stack = LocalStack(tmp_path / "home", tmp_path / "outputs")

    def serve_again() -> None:
        raise Served

    monkeypatch.setattr(stack, "_serve", serve_again)
    with stranger(answer) as stack._port:
        stack.ui = f"http://127.0.0.1:{stack._port}"
        stack._make_folders()
        stack.spawn("prefect-server", [sys.executable, "-c", ""]).wait()
        with pytest.raises(Served):
            stack._await_server()


def test_processes_that_a_killed_stack_did_not_note_are_ended_but_not_whoever_starts_the_next(tmp_path):
    """Its terminal may have belonged to the killed class, and bears that class's mark."""
    home, mark = tmp_path / "home", uuid4().hex  # nobody else's, also if these tests run twice at the same time
    home.mkdir()
    (home / "stack.json").write_text(
        json.dumps({"processes": [], "mark": mark, "sockets": str(tmp_path / "none")}), encoding="utf-8"
    )
    script = (
        "import psutil, subprocess, sys; from pathlib import Path; from deployments.local.stack import LocalStack\n"
        "left = subprocess.Popen([sys.executable, '-c', 'print(flush=True); import time; time.sleep(600)'], stdout=subprocess.PIPE)\n"
        "left.stdout.readline()\n"  # a process that is being made has no environment yet
        "LocalStack(Path(sys.argv[1]), Path(sys.argv[1]))._end_leftovers()\n"
        "print('still here;', 'left' if psutil.pid_exists(left.pid) else 'ended')"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(home)],
        env={**os.environ, STACK: mark},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.stdout == "still here; ended\n", run.stderr


def test_a_run_is_gone_when_no_process_here_bears_its_id_unless_another_machine_took_it():
    run = SimpleNamespace(id=uuid4(), labels={})
    assert is_gone(run)
    run.labels["prefect.worker.name"] = "a worker elsewhere"
    assert not is_gone(run)
    run.labels["prefect.worker.name"] = "instructor"
    assert is_gone(run)
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "input('ready\\n')"],
        env={**os.environ, "PREFECT__FLOW_RUN_ID": str(run.id)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"ready\n"  # a process that is being made has no environment yet
    assert not is_gone(run)
    process.communicate(b"\n")
    assert is_gone(run)


def test_what_a_dead_worker_left_is_cleared_and_what_a_living_one_needs_stays(tmp_path):
    """`classgan worker` in another terminal outlives a class, and its shift's folder lies in the class's."""
    stack = LocalStack(tmp_path / "home", tmp_path / "outputs")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    shifts = stack.home / "shifts"
    for owner in (os.getpid(), dead.pid):
        (shifts / f"{owner}-x1y2").mkdir(parents=True)
    stack._end_leftovers()
    assert [folder.name for folder in shifts.iterdir()] == [f"{os.getpid()}-x1y2"]


@needs("SIGHUP")
def test_a_closed_terminal_is_a_reason_to_stop_but_not_after_nohup():
    with terminated_as_interrupt(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in endings()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_database_is_found_again_where_it_was_and_never_in_a_strangers_folder(tmp_path):
    """Workers and the class page that waited while a class was away go on when it is back."""
    first = Postgres(tmp_path / "postgres")
    first.start()
    try:
        url, sockets = first.url(), first.sockets
    finally:
        first.stop()
    again = Postgres(tmp_path / "postgres")
    again.start()
    try:
        assert again.url() == url
        with connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(StackError, match="Another PostgreSQL already works"):
            Postgres(tmp_path / "postgres").start()
        assert sockets.exists()  # of the one that works
    finally:
        again.stop()
    sockets.mkdir(mode=0o777)
    sockets.chmod(0o777)  # somebody was here first, and may come in
    third = Postgres(tmp_path / "postgres")
    third.start()
    try:
        assert third.sockets != sockets
    finally:
        third.stop()
        sockets.rmdir()
    sockets.symlink_to(tmp_path)  # or leads us somewhere
    try:
        elsewhere = _short_folder(tmp_path / "postgres", None)
    finally:
        sockets.unlink()
    assert elsewhere != sockets
    elsewhere.rmdir()


# What `classgan up` says


def test_its_commands_carry_the_home_that_another_terminal_would_not_know(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["/opt/bin/classgan", "up"])
    monkeypatch.chdir(tmp_path)
    for home, expected in (
        (".classgan", "/opt/bin/classgan status"),
        (str(tmp_path / ".classgan"), "/opt/bin/classgan status"),
        (str(tmp_path / "my class"), f"CLASSGAN_HOME='{tmp_path}/my class' /opt/bin/classgan status"),
    ):
        monkeypatch.setenv("CLASSGAN_HOME", home)
        settings.cache_clear()
        assert typed("status") == expected


def test_ctrl_c_is_answered_before_anything_is_waited_for(monkeypatch, capsys):
    """The queue's thread may wait for a Prefect that doesn't answer: that took 15 s without a word."""
    said: list[str] = []

    @contextmanager
    def queue_that_hangs(*arguments: object) -> Generator[None]:
        try:
            yield
        finally:
            said.append(capsys.readouterr().out)

    monkeypatch.setattr("tasks.background.keep_queue.kept_queue", queue_that_hangs)
    monkeypatch.setattr(LocalStack, "start", lambda stack: None)
    with pytest.raises(KeyboardInterrupt), class_of(0):
        raise KeyboardInterrupt
    assert "Stopping: coordinators end their iteration (up to 3 s), workers their unit (up to 5 s)" in said[0]
