"""What somebody without a login may hold of the class server: a few bytes, for a while."""

import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest
from doors import DoorServer, door_of

from deployments.server import connections


@pytest.fixture
def door(database: str, tmp_path: Path):
    with door_of(database, tmp_path) as server:
        yield server


def line_to(door: DoorServer) -> ssl.SSLSocket:
    trust = ssl.create_default_context(cafile=str(door.pem))
    plain = socket.create_connection(("127.0.0.1", door.port), timeout=60)
    return trust.wrap_socket(plain, server_hostname="127.0.0.1")


def all_that_comes(line: ssl.SSLSocket) -> bytes:
    """Until the other side closes."""
    came = b""
    try:
        while piece := line.recv(1 << 16):
            came += piece
    except (ConnectionError, ssl.SSLError):
        pass  # closed while we still wrote
    return came


@pytest.mark.parametrize("said", [b"", b"GET /api/health HTT", b"GET /api/health HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_a_head_that_doesnt_come_to_its_end_is_not_waited_for(door, monkeypatch, said):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with closing(line_to(door)) as line:
        line.sendall(said)
        assert all_that_comes(line) == b""


def test_neither_is_that_of_a_second_request(door, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with closing(line_to(door)) as line:
        line.sendall(b"GET /classgan/student/wait HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 401")
        line.sendall(b"GET /classgan/student/wait HTTP/1.1\r\nHost")
        all_that_comes(line)


@pytest.mark.parametrize(
    "piece",
    [b"X-Endless: " + b"a" * 1_000_000, b"".join(b"X-%d: a\r\n" % n for n in range(30_000)), b"/" * 1_000_000],
    ids=["one long header", "many headers", "a long line"],
)
def test_a_head_that_is_too_long_ends_the_connection(door, piece):
    begin = b"GET /" if piece.startswith(b"/") else b"GET / HTTP/1.1\r\nHost: x\r\n"
    with closing(line_to(door)) as line:
        try:
            for _ in range(200):  # far more than is kept
                line.sendall(begin + piece)
                begin = b""
        except (ConnectionError, ssl.SSLError, TimeoutError):
            return
    pytest.fail("200 MB of a head were taken")


def test_a_body_is_as_long_as_it_is(door):
    """The door itself limits it."""
    with door.client("ada") as client:
        answer = client.post("/calls/my_credit", content=b"{}" + b" " * 60_000)
    assert answer.status_code == 200


def test_what_is_no_http_is_answered_with_400(door):
    with closing(line_to(door)) as line:
        line.sendall(b"\x00\x01\x02 hello\r\n\r\n")
        assert all_that_comes(line).startswith(b"HTTP/1.1 400")


def test_two_lengths_of_one_body_are_refused(door):
    """Else somebody in between might see another request than the class server."""
    with closing(line_to(door)) as line:
        line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert all_that_comes(line).startswith(b"HTTP/1.1 400")
