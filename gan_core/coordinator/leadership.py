"""The lead of a training: a lock, a term and a heartbeat, so that one coordinator publishes and a standby can take over."""

import logging
import threading
import time
from contextlib import suppress
from uuid import uuid4

from psycopg import Connection

from gan_core.errors import GanError, LeadLost
from gan_core.store.coordinator import leader_lock, unit_queue
from gan_core.store.engine import Link

log = logging.getLogger("classgan.lead")

BEAT = 3.0  # seconds between heartbeats
SILENT = 15.0  # seconds without one, after which a standby cuts the leader off: five beats
HUNG = 300.0  # seconds without a step of the work, after which a process that still runs counts as silent too
LOOK = 0.5  # seconds between a standby's looks


class Leadership:
    """Holds one training's lead for this process: give `take_hold` every new connection before it is used.

    The lock ends with the connection, so a leader that dies is followed within a second. One that only falls silent
    is cut off by the standby. Whoever comes back and finds that somebody led meanwhile gets LeadLost: its state is old.
    """

    def __init__(self, url: str, training_id: int, name: str) -> None:
        self.id = uuid4()
        self.term: int | None = None
        self.waited = False  # whether this process stood by before it led
        self._training_id, self._name = training_id, name
        self._ended = threading.Event()
        self._stepped = time.monotonic()
        link = Link(url, should_stop=self._ended.is_set)
        self._heart = threading.Thread(target=self._beat, args=(link,), name="heartbeat", daemon=True)
        self._heart.start()

    def step(self) -> None:
        """The work moves: told at least every few seconds, or no heartbeat is sent."""
        self._stepped = time.monotonic()

    def take_hold(self, connection: Connection) -> None:
        """Wait until nobody else leads, then lead on this connection.

        Raises:
            LeadLost: somebody led while this coordinator's connection was away.
        """
        said = False
        while (term := leader_lock.take(connection, self._training_id, self.id, self.term)) is None:
            if not said:
                said = self.waited = True
                log.warning(
                    "Another coordinator leads training %r. Standing by; this one takes over when that one ends.",
                    self._name,
                )
            if leader_lock.depose_silent(connection, self._training_id, SILENT):
                log.warning(
                    "The coordinator of %r has sent no heartbeat for %.0f s: its connection is ended.",
                    self._name,
                    SILENT,
                )
            self.step()
            time.sleep(LOOK)
        if self.term is None:
            if said:
                log.warning("Taking over training %r.", self._name)
            self.term = term
        elif term != self.term:
            raise LeadLost(
                f"Another coordinator has led training {self._name!r} meanwhile, so this one's state is out of date."
            )

    def leave(self) -> None:
        """Orderly end: whoever comes next has nothing to take over. The connection that leads is closed by its owner."""
        self._ended.set()
        self._heart.join()

    def _beat(self, link: Link) -> None:
        """On an own connection, so that neither an update nor a large blob is in the way."""
        with link, suppress(GanError):
            while not self._ended.wait(BEAT):
                if time.monotonic() - self._stepped < HUNG:
                    link.call(lambda c: leader_lock.beat(c, self.id))
                    link.call(unit_queue.end_runaway_sessions)  # here, since they may be what the work itself waits for
            link.call(lambda c: leader_lock.leave(c, self.id))
