"""TLS in front of the embedded PostgreSQL, whose build has none: upgrades a student's connection and hands it on.

A process of its own, started by `classgan up`. It reads no more than the greeting in which a client asks for TLS
(https://www.postgresql.org/docs/current/protocol-flow.html, "SSL Session Encryption"); everything after it is between
the client and PostgreSQL, which asks for the password.
"""

import asyncio
import socket
import ssl
import struct
import sys
from contextlib import suppress

from deployments.server.class_file import ClassFile
from gan_core.errors import StackError
from gan_core.settings import settings

WANTS_TLS, WANTS_GSS = struct.pack("!ii", 8, 80877103), struct.pack("!ii", 8, 80877104)
PATIENCE = 10.0  # seconds for a greeting and a handshake
PIECE = 1 << 18  # bytes handed on at once


def refusal(sentence: str) -> bytes:
    """An error message as PostgreSQL would send it."""
    fields = b"".join(
        f"{kind}{text}\0".encode() for kind, text in (("S", "FATAL"), ("V", "FATAL"), ("C", "28000"), ("M", sentence))
    )
    return b"E" + struct.pack("!i", len(fields) + 5) + fields + b"\0"


class Relay:
    """Hands connections on to a PostgreSQL on this machine.

    Args:
        context: with the class's certificate.
        port: where PostgreSQL listens on 127.0.0.1.
    """

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self._context, self._port = context, port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, from greeting to goodbye."""
        back: asyncio.StreamWriter | None = None
        _notice_when_gone(writer)
        try:
            async with asyncio.timeout(PATIENCE):
                if not await self._upgraded(reader, writer):
                    return
                behind, back = await asyncio.open_connection("127.0.0.1", self._port, limit=PIECE)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pour(reader, back))
                group.create_task(_pour(behind, writer))
        except* (OSError, TimeoutError, asyncio.IncompleteReadError, _Gone):
            pass  # one side is gone, and the other is told so by the closing
        finally:
            for end in filter(None, (writer, back)):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _upgraded(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the client has asked for TLS, and got it."""
        greeting = await reader.readexactly(8)
        if greeting == WANTS_GSS:
            writer.write(b"N")
            greeting = await reader.readexactly(8)
        if greeting != WANTS_TLS:
            writer.write(refusal("this class speaks TLS only: connect with sslmode=verify-full, as the invite says"))
            await writer.drain()
            return False
        if reader._buffer:  # ty: ignore[missing-attribute]  said before the handshake: somebody in between put it there (CVE-2021-23214)
            return False
        writer.write(b"S")
        await writer.drain()
        await writer.start_tls(self._context, ssl_handshake_timeout=PATIENCE)
        return True


def _notice_when_gone(writer: asyncio.StreamWriter) -> None:
    """A laptop that lost its network says no goodbye: after two minutes without an answer its connection ends."""
    plug = writer.get_extra_info("socket")
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 120_000)):
        if option := getattr(socket, name, None):  # not every system has each of them
            plug.setsockopt(socket.IPPROTO_TCP, option, value)


class _Gone(Exception):
    """A side has ended the connection."""


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE):
        sink.write(piece)
        await sink.drain()
    raise _Gone


async def run(listen: str, port: int, context: ssl.SSLContext, behind: int) -> None:
    """Relay until cancelled."""
    server = await asyncio.start_server(Relay(context, behind).serve, listen, port, limit=PIECE, backlog=512)
    async with server:
        await server.serve_forever()


def main() -> None:
    home = settings().home
    class_file = ClassFile.load(home)
    if class_file is None:
        raise StackError(f"No class was made in {home.resolve()}. Make one: classgan init --address HOST")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(home / "class.pem", home / "class.key")
    with suppress(KeyboardInterrupt):
        asyncio.run(run(class_file.listen, class_file.database_port, context, int(sys.argv[1])))


if __name__ == "__main__":
    main()
