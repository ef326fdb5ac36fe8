"""The weights that a class fetches: read from PostgreSQL once, kept as a few files, each named by the SHA-256 of its bytes."""

import asyncio
import hashlib
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from deployments.server.door.database import Database
from gan_core.files import write_whole
from gan_core.store import student
from gan_core.store.door import Weights

KEPT = 16  # versions, beside the newest of each training: what somebody still fetches, or computes a second time


class WeightsCache:
    """Args:
    folder: for the files; what an earlier process left there goes.
    """

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._known: OrderedDict[tuple[int, int], Weights] = OrderedDict()
        self._reading: dict[tuple[int, int], asyncio.Lock] = {}

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink()

    async def find(self, login: str, training: int, iteration: int) -> Weights | None:
        """What to ask `path` for; None if the training has no such weights any more. Raises what the database raises."""
        which = training, iteration
        try:
            async with self._reading.setdefault(which, asyncio.Lock()):  # a class asks all at once
                if which not in self._known:
                    payload = await self._database.ask(
                        login, lambda c: student.weights(c, training, iteration), is_large=True, for_all=True
                    )
                    if payload is None:
                        return None
                    self._known[which] = await asyncio.to_thread(self._keep, payload)
        finally:
            self._reading.pop(which, None)
        self._known.move_to_end(which)
        self._drop_old()
        return self._known[which]

    def path(self, sha256: str) -> Path | None:
        """The file with these bytes, if it is kept."""
        kept = any(known.sha256 == sha256 for known in self._known.values())
        return self._folder / sha256 if kept else None

    def _keep(self, payload: bytes) -> Weights:
        found = Weights(sha256=hashlib.sha256(payload).hexdigest(), size=len(payload))
        write_whole(self._folder / found.sha256, payload)
        return found

    def _drop_old(self) -> None:
        """What was asked for least of late. The newest of a training stays: nobody who cycles through old ones drives it out."""
        newest = dict(sorted(self._known))  # of each training, the last iteration
        old = [which for which in self._known if which[1] != newest[which[0]]]
        for which in old[: max(0, len(old) - KEPT)]:
            gone = self._known.pop(which)
            if gone not in self._known.values():
                with suppress(OSError):  # on Windows, while somebody still fetches it; the next start removes it
                    (self._folder / gone.sha256).unlink(missing_ok=True)
