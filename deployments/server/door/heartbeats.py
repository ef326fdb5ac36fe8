"""Heartbeats of many shifts, gathered for a moment and written over one connection, each as a transaction of its own.

A class of five hundred sends a hundred a second. As questions by themselves they cost a quarter of a core.
"""

import asyncio
import time
from collections import Counter
from uuid import UUID

from deployments.server.door.database import Database
from deployments.server.gate.runs import Refused

SHARE = 0.01  # seconds a machine for which they are gathered: a small class doesn't notice
LONGEST = 3.0  # seconds; with the five between two of them, a lease of 30 s still survives the loss of two
KNOWN = 60.0  # seconds without another one, after which a machine no longer counts
EACH = 64  # that wait of one student: two a machine

Heartbeat = tuple[str, int, UUID]  # login, worker, start of the worker


class Heartbeats:
    """Args:
    database: that writes them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[Heartbeat, asyncio.Future[list[int]]] = {}
        self._seen: dict[int, float] = {}  # worker → when last, by the monotonic clock
        self._gathering: asyncio.Task[None] | None = None

    async def take(self, login: str, worker: int, boot: UUID) -> list[int]:
        """Renew the leases that this start of a worker holds; returns them.

        Raises:
            Refused: too many of this student's wait already.
            StoreUnreachable: the database doesn't answer.
            StoreError: it refuses this one.
        """
        heartbeat = login, worker, boot
        if heartbeat not in self._waiting:
            if Counter(theirs for theirs, _, _ in self._waiting)[login] >= EACH:
                raise Refused(429, f"{EACH} heartbeats of yours wait already.")
            self._waiting[heartbeat] = asyncio.get_running_loop().create_future()
        answer = self._waiting[heartbeat]
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())
        return await asyncio.shield(answer)  # the same one, sent again, may wait for it, too

    async def _gather(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._hold())
            gathered, self._waiting = self._waiting, {}
            try:
                answers = await self._database.renew(list(gathered))
            except Exception as exc:  # noqa: BLE001  whatever it is: nobody shall wait for ever
                answers = [exc] * len(gathered)
            now = time.monotonic()
            for ((_, worker, _), waiting), answer in zip(gathered.items(), answers, strict=True):
                if isinstance(answer, Exception):
                    waiting.set_exception(answer)
                    waiting.exception()  # perhaps nobody waits any more, and asyncio would complain
                else:
                    waiting.set_result(answer)
                    self._seen[worker] = now

    def _hold(self) -> float:
        over = time.monotonic() - KNOWN
        self._seen = {worker: seen for worker, seen in self._seen.items() if seen > over}
        return min(LONGEST, SHARE * len(self._seen))
