"""A worker of version 0.1 comes to PostgreSQL's old port, and reads what to do."""

import asyncio
import socket
import ssl
import threading
from pathlib import Path

import psycopg
import pytest

from deployments.server.certificate import make
from deployments.server.old_door import serve


@pytest.fixture
def old_door(tmp_path: Path):
    """Its port."""
    pem, key = tmp_path / "class.pem", tmp_path / "class.key"
    make(pem, key, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(lambda r, w: serve(r, w, context), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.mark.parametrize("mode", ["verify-full", "disable"])
def test_an_old_worker_reads_what_to_do_and_waits(old_door, tmp_path, mode):
    url = f"postgresql://ada:secret@127.0.0.1:{old_door}/classgan?sslmode={mode}&sslrootcert={tmp_path / 'class.pem'}"
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect(url, connect_timeout=10)
    assert "everything goes through its class server now. Install that version on this machine" in str(refused.value)


def test_whoever_says_nothing_or_nonsense_holds_nothing(old_door):
    with socket.create_connection(("127.0.0.1", old_door)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.settimeout(20)
        assert b"everything goes through" in plain.recv(4096)
        assert plain.recv(4096) == b""
