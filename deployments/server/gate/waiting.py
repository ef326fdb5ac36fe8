"""Idle workers: their polls are answered from one look at Prefect for all, and held open until there is a shift."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from starlette.types import Receive

from deployments.prefect_settings import HELD
from deployments.server.gate.runs import Inner, Refused
from tasks.background.shifts import POOL

LOOK = 0.5  # seconds between two looks at Prefect, however many wait
OFFERED = 5.0  # seconds that a shift is kept for whom it was offered to; a worker takes it within one
PREFETCH = timedelta(seconds=10)  # a shift is offered so long before it is due
MOST = 1_000  # that are asked for at once: what was offered and isn't taken yet comes first, and must not hide the rest

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Poll:
    login: str
    answer: asyncio.Future[list[Any]]
    since: float = field(default_factory=time.monotonic)


class Waiting:
    """The polls that are open, and the shifts that were offered.

    Of two who wait, the one is served who was offered less of late; so nobody gets all by asking often.
    """

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._polls: list[_Poll] = []
        self._offered: dict[str, tuple[float, str]] = {}  # run → until when it is kept, for whom
        self._looks: asyncio.Task[None] | None = None

    async def shift_for(self, login: str, hold: float) -> list[Any]:
        """At most one scheduled run, in Prefect's words; none if there is none within so many seconds.

        Args:
            hold: 0 for whoever wants to know it now; at most HELD.

        Raises:
            Refused: Prefect doesn't answer.
        """
        poll = _Poll(login, asyncio.get_running_loop().create_future())
        self._polls.append(poll)
        if self._looks is None or self._looks.done():
            self._looks = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(LOOK * 1.5 + min(hold, HELD)):  # one look at least
                return await poll.answer
        except TimeoutError:
            return []
        finally:
            if poll in self._polls:
                self._polls.remove(poll)

    async def _look(self) -> None:
        """While anybody waits, look for shifts, and offer each to one."""
        while self._polls:
            started = time.monotonic()
            self._offered = {run: kept for run, kept in self._offered.items() if kept[0] > started}
            body = {
                "limit": min(MOST, len(self._polls) + len(self._offered)),
                "scheduled_before": (
                    datetime.now(UTC) + PREFETCH
                ).isoformat(),  # by this machine's clock: theirs show anything
            }
            response = await self._inner.call("POST", f"/work_pools/{POOL}/get_scheduled_flow_runs", body)
            if response.status_code == 200:
                self._offer([run for run in response.json() if run["flow_run"]["id"] not in self._offered])
            else:
                self._refuse(Refused(503, f"Prefect answered {response.status_code}. Ask again."))
            await asyncio.sleep(max(0.0, LOOK - (time.monotonic() - started)))

    def _offer(self, runs: list[Any]) -> None:
        had = Counter(login for _, login in self._offered.values())
        for run in runs:
            open_polls = [poll for poll in self._polls if not poll.answer.done()]
            if not open_polls:
                return
            poll = min(open_polls, key=lambda poll: (had[poll.login], poll.since))
            had[poll.login] += 1
            self._offered[run["flow_run"]["id"]] = time.monotonic() + OFFERED, poll.login
            poll.answer.set_result([run])

    def _refuse(self, refused: Refused) -> None:
        for poll in self._polls:
            if not poll.answer.done():
                poll.answer.set_exception(refused)


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """What comes of this work; None, and its end, if whoever asked has gone: a shift that is offered to nobody is lost for a while.

    Args:
        receive: of the request, whose body was read.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return await working
    finally:
        leaving.cancel()
        working.cancel()  # changes nothing if it is done
    with suppress(asyncio.CancelledError):
        await working
    return None


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
