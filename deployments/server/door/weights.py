"""The weights that a class fetches: read from PostgreSQL once, kept as a few files, each named by the SHA-256 of its bytes."""

import asyncio
import hashlib
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from deployments.server.door.database import Database
from gan_core.files import write_whole
from gan_core.store import student
from gan_core.store.door import Piece, Weights

# Versions, beside the newest of each training at work: what somebody still fetches, or computes a second time.
KEPT = 16


class WeightsCache:
    """Args:
    folder: for the files; what an earlier process left there goes.
    """

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._known: OrderedDict[tuple[int, int], Weights] = OrderedDict()
        self._at_work: set[int] = set()  # trainings that want workers, when the database was asked last
        self._asking: dict[str, asyncio.Lock] = {}  # by login
        self._reading: dict[tuple[int, int], asyncio.Lock] = {}

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink()

    async def find(self, login: str, training: int, iteration: int) -> Weights | None:
        """What to ask `path` for; None if the training has no such weights any more. Raises what the database raises.

        What is known is answered at once. Of the rest, each student asks for one at a time: whoever tries one number after
        the other takes one of the few places for reading, and holds nothing that others wait for.
        """
        which = training, iteration
        if which not in self._known:
            # Before the version's own lock: nobody waits while holding that one.
            async with self._asking.setdefault(login, asyncio.Lock()):
                if not await self._read(login, which):
                    return None
        self._known.move_to_end(which)
        self._drop_old()
        return self._known[which]

    async def _read(self, login: str, which: tuple[int, int]) -> bool:
        """Whether this version is known now; it is read from the database once, also if a class asks all at once."""
        try:
            async with self._reading.setdefault(which, asyncio.Lock()):
                if which not in self._known:
                    payload, change, at_work = await self._database.ask(
                        login,
                        lambda c: (student.weights(c, *which), student.weights_change(c, *which), student.trainings(c)),
                        for_all=True,
                    )
                    self._at_work = set(at_work)
                    if payload is None:
                        return False
                    self._known[which] = await asyncio.to_thread(self._keep, payload, change)
        finally:
            self._reading.pop(which, None)
        return True

    def path(self, sha256: str) -> Path | None:
        """The file with these bytes, if it is kept."""
        return self._folder / sha256 if sha256 in self._kept() else None

    def _kept(self) -> set[str]:
        return {piece.sha256 for known in self._known.values() for piece in (known, known.change) if piece}

    def _keep(self, payload: bytes, change: bytes | None) -> Weights:
        whole = self._write(payload)
        return Weights(sha256=whole.sha256, size=whole.size, change=self._write(change) if change else None)

    def _write(self, content: bytes) -> Piece:
        piece = Piece(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
        write_whole(self._folder / piece.sha256, content)
        return piece

    def _drop_old(self) -> None:
        """What was asked for least of late. What a class at work fetches stays, the newest of its training: nobody who cycles
        through old ones, or through the trainings of a term, drives it out.
        """
        newest = dict(sorted(self._known))  # of each training, the last iteration
        old = [which for which in self._known if which[0] not in self._at_work or which[1] != newest[which[0]]]
        for which in old[: max(0, len(old) - KEPT)]:
            gone = self._known.pop(which)
            for piece in (gone, gone.change):
                if piece and piece.sha256 not in self._kept():
                    with suppress(OSError):  # on Windows, while somebody still fetches it; the next start removes it
                        (self._folder / piece.sha256).unlink(missing_ok=True)
