"""A stack on a machine where others are at home as well: their ports, and processes that only look like its own."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from deployments.local_stack import STACK, LocalStack


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
        ours = stack.children["prefect-server"] = subprocess.Popen([sys.executable, "-c", ""])
        ours.wait()
        with pytest.raises(Served):
            stack._await_server()


def test_processes_that_a_killed_stack_did_not_note_are_ended_but_not_whoever_starts_the_next(tmp_path):
    """Its terminal may have belonged to the killed class, and bears that class's mark."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "stack.json").write_text(json.dumps({"processes": [], "mark": "m1", "sockets": str(tmp_path / "none")}))
    script = (
        "import psutil, subprocess, sys; from pathlib import Path; from deployments.local_stack import LocalStack\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "LocalStack(Path(sys.argv[1]), Path(sys.argv[1]))._end_leftovers()\n"
        "print('still here;', 'left' if psutil.pid_exists(left.pid) else 'ended')"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(home)],
        env={**os.environ, STACK: "m1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.stdout == "still here; ended\n", run.stderr
