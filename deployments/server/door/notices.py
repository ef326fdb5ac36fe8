"""Who waits for work: one connection to PostgreSQL hears for all of them that there is some."""

import asyncio
import logging
import threading
from contextlib import suppress

from psycopg import Connection

from gan_core.errors import StoreError
from gan_core.store.engine import Link, wait_for_notice

log = logging.getLogger("classgan.server")

PAUSE = 5.0  # seconds before it is tried again to listen
LOOK = 0.5  # seconds after which the thread sees that it is to end
JOINED = 0.2  # seconds in which notices are one: each wakes all who wait, and each of those asks for work


class Notices:
    """Counts the notices of new work, and wakes whoever waits for the next one. Those of the same moment count as one.

    Args:
        url: of the class's database, as the instructor.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.heard = 0
        self._next = asyncio.Event()
        self._woke = -JOINED  # when all were woken last, by the event loop's clock
        self._is_due = False  # they are woken soon, and whatever is noticed until then with it
        self._over = threading.Event()

    def start(self) -> None:
        """Listen from now on, in a thread. To be called in the event loop."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), name="notices", daemon=True).start()

    def stop(self) -> None:
        """The thread ends within LOOK."""
        self._over.set()

    async def after(self, heard: int, seconds: float) -> int:
        """How often all were woken, as soon as it is another number than this, or after so many seconds."""
        if heard == self.heard:
            try:
                async with asyncio.timeout(seconds):
                    await self._next.wait()
            except TimeoutError:
                pass
        return self.heard

    def _tell(self) -> None:
        """Somebody noticed. The first one wakes at once; what comes within JOINED after it, together, when that is over."""
        if self._is_due:
            return
        loop = asyncio.get_running_loop()
        if (early := self._woke + JOINED - loop.time()) > 0:
            self._is_due = True
            loop.call_later(early, self._wake, loop)
        else:
            self._wake(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._woke, self._is_due = loop.time(), False
        self.heard += 1
        self._next.set()
        self._next = asyncio.Event()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        def listen(connection: Connection) -> None:
            connection.execute("LISTEN classgan_work")
            loop.call_soon_threadsafe(self._tell)  # there may have been one meanwhile

        with suppress(RuntimeError), Link(self._url, should_stop=self._over.is_set, on_connect=listen) as link:
            while not self._over.is_set():  # RuntimeError: the loop is closed
                try:
                    if link.call(lambda c: wait_for_notice(c, LOOK)):
                        loop.call_soon_threadsafe(self._tell)
                except StoreError as exc:
                    if self._over.wait(LOOK):
                        return
                    log.warning("Nobody hears of new work now, and machines ask instead: %s", exc)
                    self._over.wait(PAUSE)
