"""What students send: each contribution grows in a file of its own until it is whole, and is handed in from there.

Nothing here counts for anything before it is in the database. A file is bound to its student, lease and start of a worker, is
never longer than the training's payloads and a trail, and goes once it was handed in or has lain for a while. None is begun
for which the disk has no room beside what is still to come of the others.
"""

import asyncio
import errno
import hashlib
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from psycopg import Connection

from deployments.server.door.database import Database
from deployments.server.gate.runs import Refused
from gan_core.store import student
from gan_core.store.door import TRAIL_BYTES, Sent
from gan_core.units import Submission

LAIN = 900.0  # seconds without another byte, after which a file goes; its lease has run out long before
EACH = 96  # files of one student: three a machine
RESERVE = 2 << 30  # bytes that uploads leave free: PostgreSQL's disk is often the same
PIECE = 1 << 20  # bytes that are written at once
BYTE_SECONDS = 30.0  # for the next bytes
LEAST_RATE = 4_000  # bytes a second over the whole of a request, after its first BYTE_SECONDS


@dataclass(slots=True)
class _Upload:
    path: Path
    login: str
    limit: int  # bytes
    size: int = 0
    grew: float = 0.0
    is_open: bool = False  # a request writes to it, or hands it in


class Uploads:
    """Args:
    folder: for the files; what an earlier process left there goes, and is sent again.
    """

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._uploads: dict[tuple[str, int, UUID], _Upload] = {}

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink()

    async def size(self, login: str, lease: int, boot: UUID) -> int | None:
        """Bytes that are here; None if the lease isn't theirs. What was answered already needs no more, and seems whole.

        Raises:
            OSError: the disk has no room for all that was announced, this one included.
            Refused: this student has too many on their way.
        """
        self._clear_up()
        key = login, lease, boot
        if (upload := self._uploads.get(key)) is None:
            wanted = await self._database.ask(login, lambda c: student.upload_bytes(c, lease, boot))
            if wanted is None:
                return None
            if not wanted:
                return 1 << 62
            limit = wanted + TRAIL_BYTES
            self._require_room(limit + sum(known.limit - known.size for known in self._uploads.values()))
            if Counter(known.login for known in self._uploads.values())[login] >= EACH:
                raise Refused(429, f"{EACH} contributions of yours are on their way already. Wait for one of them.")
            upload = self._uploads.setdefault(key, _Upload(self._folder / f"{login}.{lease}.{boot.hex}", login, limit))
            upload.grew = time.monotonic()
        return upload.size

    async def take(
        self, login: str, lease: int, boot: UUID, first: int, total: int, body: AsyncIterator[bytes]
    ) -> None:
        """Add the bytes from `first` on.

        Raises:
            Refused: nobody asked for `size` before, it isn't there that this goes on, or it is more than this lease can have.
            OSError: the disk is full, or others have filled it up to the reserve meanwhile.
        """
        upload = self._uploads.get((login, lease, boot))
        if upload is None or first != upload.size or upload.is_open:
            raise Refused(409, "These bytes don't follow those that are here. Ask how many there are.")
        if total > upload.limit:
            raise Refused(413, f"{total:,} bytes are more than this lease's answer can have: {upload.limit:,}.")
        upload.is_open = True
        began, came, waiting = time.monotonic(), 0, bytearray()
        try:
            while (piece := await _within(body)) is not None:
                if first + came + len(piece) > total:  # nothing of it is written
                    raise Refused(413, f"More bytes came than were announced: {total:,}.")
                came += len(piece)
                waiting += piece
                slow = time.monotonic() - began - BYTE_SECONDS
                if slow > 0 and came < slow * LEAST_RATE:
                    raise Refused(408, f"Fewer than {LEAST_RATE:,} bytes a second are not waited for.")
                if len(waiting) >= PIECE:
                    await self._write(upload, waiting)
        finally:
            try:
                await self._write(upload, waiting)
            finally:
                upload.is_open = False
        if upload.size < total:
            raise Refused(400, "The connection ended in the middle of the body.")

    async def hand_in(self, login: str, lease: int, sent: Sent) -> Submission:
        """What the database says of the whole.

        Raises:
            Refused: it isn't here, or has another hash.
        """
        key = login, lease, sent.boot
        upload = self._uploads.get(key)
        if upload is None or not upload.size:
            if await self._database.ask(login, lambda c: student.upload_bytes(c, lease, sent.boot)):
                raise Refused(409, "Nothing of it is here: the class server was started anew. Send it again.")
            # It was answered already, or isn't theirs: the database says so.
            return await self._database.ask(
                login, lambda c: student.submit(c, lease, sent.boot, sent.measures, b"", b"")
            )
        if upload.is_open:
            raise Refused(409, "It is being sent or handed in by another request.")

        def submit(connection: Connection) -> Submission:
            whole = upload.path.read_bytes()  # only now: a class that hands in together waits with nothing in memory
            if hashlib.sha256(whole).hexdigest() != sent.sha256:
                raise Refused(409, "What is here has another SHA-256 than what was sent. Send it again.")
            payload, trail = whole[: sent.payload_bytes], whole[sent.payload_bytes :]
            return student.submit(connection, lease, sent.boot, sent.measures, payload, trail)

        upload.is_open = True
        try:
            answer = await self._database.ask(login, submit, is_large=True)
        except Refused:
            self._drop(key)
            raise
        finally:
            upload.is_open = False
        self._drop(key)
        return answer

    async def _write(self, upload: _Upload, waiting: bytearray) -> None:
        if not waiting:
            return
        piece = bytes(waiting)
        waiting.clear()

        def write() -> None:
            self._require_room(len(piece))
            with upload.path.open(
                "r+b" if upload.size else "wb"
            ) as file:  # what a full disk took of a piece is written over
                file.seek(upload.size)
                file.write(piece)

        await asyncio.to_thread(write)
        upload.size += len(piece)
        upload.grew = time.monotonic()

    def _require_room(self, more: int) -> None:
        if shutil.disk_usage(self._folder).free - more < RESERVE:
            raise OSError(errno.ENOSPC, f"fewer than {RESERVE >> 20:,} MB would stay free")

    def _drop(self, key: tuple[str, int, UUID]) -> None:
        if (upload := self._uploads.pop(key, None)) is not None:
            with suppress(OSError):
                upload.path.unlink(missing_ok=True)

    def _clear_up(self) -> None:
        for key, upload in list(self._uploads.items()):
            if not upload.is_open and time.monotonic() - upload.grew > LAIN:
                self._drop(key)


async def _within(body: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(BYTE_SECONDS):
            return await anext(body, None)
    except TimeoutError as exc:
        raise Refused(408, f"No more bytes came within {BYTE_SECONDS:.0f} s.") from exc
