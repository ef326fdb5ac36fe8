"""TLS in front of PostgreSQL: what it hands on is untouched, what doesn't greet as it should is refused, nothing stays open."""

import asyncio
import os
import socket
import ssl
import struct
import threading
from contextlib import contextmanager, suppress

import pytest
from poll import wait_until

from deployments.server import relay
from deployments.server.certificate import make

WANTS_TLS = struct.pack("!ii", 8, 80877103)
WANTS_GSS = struct.pack("!ii", 8, 80877104)


@pytest.fixture
def relayed(tmp_path):
    """A relay in front of a server that sends back what it gets; gives (port, certificate, connections behind)."""
    pem, key = tmp_path / "class.pem", tmp_path / "class.key"
    make(pem, key, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    behind: set[asyncio.StreamWriter] = set()
    loop = asyncio.new_event_loop()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind.add(writer)
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
        writer.close()
        behind.discard(writer)

    async def start() -> tuple[asyncio.Server, asyncio.Server]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        front = relay.Relay(context, server.sockets[0].getsockname()[1])
        return server, await asyncio.start_server(front.serve, "127.0.0.1", 0)

    servers = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield servers[1].sockets[0].getsockname()[1], pem, behind
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@contextmanager
def greeted(port: int, pem, *greetings: bytes):
    """A connection that asked for TLS as PostgreSQL's clients do."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        for greeting in greetings or (WANTS_TLS,):
            plain.sendall(greeting)
            assert plain.recv(1) == (b"S" if greeting == WANTS_TLS else b"N")
        with ssl.create_default_context(cafile=pem).wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            yield secure


def test_a_large_message_comes_back_as_it_was(relayed):
    port, pem, _ = relayed
    sent, received = os.urandom(5_000_000), bytearray()
    with greeted(port, pem) as secure:
        thread = threading.Thread(target=secure.sendall, args=(sent,))
        thread.start()
        while len(received) < len(sent):
            received += secure.recv(1 << 20)
        thread.join()
    assert received == sent


def test_who_asks_for_kerberos_first_gets_tls_next(relayed):
    port, pem, _ = relayed
    with greeted(port, pem, WANTS_GSS, WANTS_TLS) as secure:
        secure.sendall(b"hello")
        assert secure.recv(5) == b"hello"


def test_what_was_said_before_the_handshake_reaches_nothing(relayed):
    """Somebody in between could put a greeting of their own in front of the student's: CVE-2021-23214."""
    port, _, behind = relayed
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        plain.sendall(WANTS_TLS + b"INJECTED")
        assert plain.recv(10) == b""
    assert not behind


@pytest.mark.parametrize(
    "greeting",
    [struct.pack("!ii", 100, 196608), b"GET / HT", b"\x16\x03\x01\x02\x00\x01\x00\x01"],
    ids=["plain", "web", "tls"],
)
def test_whoever_doesnt_ask_for_tls_is_told_so_and_reaches_nothing(relayed, greeting):
    port, _, behind = relayed
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        plain.sendall(greeting)
        answer = plain.recv(1_000)
        assert answer.startswith(b"E")
        assert b"this class speaks TLS only" in answer
        assert plain.recv(1) == b""
    assert not behind


def test_a_client_that_vanishes_leaves_nothing_behind(relayed):
    port, pem, behind = relayed
    with greeted(port, pem) as secure:
        secure.sendall(b"hello")
        assert secure.recv(5) == b"hello"
        assert len(behind) == 1
    wait_until(lambda: not behind, 10, "the end of the connection behind")


def test_whoever_says_nothing_is_cut_off(relayed, monkeypatch):
    monkeypatch.setattr(relay, "PATIENCE", 0.3)
    port, _, behind = relayed
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        assert plain.recv(1) == b""  # an end, not a time-out
    assert not behind
