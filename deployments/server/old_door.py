"""Where workers of version 0.1 come: they asked PostgreSQL itself, over TLS. Now each gets a sentence that says what to do.

A process of its own, started by `classgan up` in a class that such workers know. It goes when nobody has version 0.1 any more.
"""

import asyncio
import ssl
import struct
from contextlib import suppress

from deployments.server.class_file import ClassFile
from gan_core.errors import StackError
from gan_core.settings import settings

WANTS_TLS = struct.pack(
    "!ii", 8, 80877103
)  # https://www.postgresql.org/docs/current/protocol-message-formats.html, SSLRequest
PATIENCE = 10.0  # seconds for a greeting and a handshake
MOVED = (
    "this class has a new version of classgan, and everything goes through its class server now. Install that version "
    "on this machine, then start its worker again: classgan join INVITE, with the invite that you have"
)


def refusal(sentence: str) -> bytes:
    """An error message as PostgreSQL would send it. Its code is that of a server that shuts down: the worker waits."""
    fields = b"".join(
        f"{kind}{text}\0".encode() for kind, text in (("S", "FATAL"), ("V", "FATAL"), ("C", "57P01"), ("M", sentence))
    )
    return b"E" + struct.pack("!i", len(fields) + 5) + fields + b"\0"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
    """Tell one client."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(PATIENCE):
            if await reader.readexactly(8) == WANTS_TLS:
                writer.write(b"S")
                await writer.drain()
                await writer.start_tls(context, ssl_handshake_timeout=PATIENCE)
                await reader.read(1 << 16)  # who it is, which doesn't matter
            writer.write(refusal(MOVED))
            await writer.drain()
    writer.close()


async def run(listen: str, port: int, context: ssl.SSLContext) -> None:
    """Until cancelled."""
    server = await asyncio.start_server(lambda r, w: serve(r, w, context), listen, port)
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
        asyncio.run(run(class_file.listen, class_file.database_port, context))


if __name__ == "__main__":
    main()
