"""One iteration's contributions on their way into the sum, which is built in unit order whoever comes first."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from psycopg import Connection

from gan_core.errors import PayloadError
from gan_core.models import Layout, Vectors
from gan_core.plan import Plan
from gan_core.policies.codecs import decode
from gan_core.store import queue
from gan_core.update import Aggregate

log = logging.getLogger("classgan.rounds")

LOOKAHEAD = 4  # decoded contributions kept until their turn in the sum; later ones are read again


@dataclass(frozen=True, slots=True)
class Gathered:
    """What an iteration closed with."""

    contributions: tuple[int, ...]
    images: int
    workers: int


class Round:
    """Fed by `look` as often as something may have come; closed by `finish`."""

    def __init__(self, plan: Plan, layout: Layout, training_id: int, iteration: int) -> None:
        self._plan, self._layout = plan, layout
        self._training_id, self._iteration = training_id, iteration
        self._known: dict[int, queue.Arrival] = {}  # by first ordinal: those not yet in the sum
        self._decoded: dict[int, Vectors] = {}  # some of them, decoded ahead of their turn
        self._workers: set[str] = set()
        self._included: list[int] = []
        self.aggregate = Aggregate(plan)
        self.images = 0

    def look(self, connection: Connection) -> bool:
        """Take in what has arrived; True when the quorum is there."""
        # The frontier first: whatever lies before it had arrived by then, so the list read next holds all of it.
        frontier = queue.progress(connection, self._training_id, self._iteration).frontier
        seen = {*self._included, *(arrival.id for arrival in self._known.values())}
        for arrival in queue.arrivals(connection, self._training_id, self._iteration):
            if arrival.id in seen:
                continue
            try:
                vectors = self._read(connection, arrival)
            except PayloadError as exc:
                log.warning("Refused a contribution of %s: %s", arrival.worker, exc)
                queue.refuse(connection, arrival.id, str(exc))
                return False  # its units are open again: look anew before anything behind them is added
            self._known[arrival.first_ordinal] = arrival
            if len(self._decoded) < LOOKAHEAD:
                self._decoded[arrival.first_ordinal] = vectors
            self.images += arrival.images
            self._workers.add(arrival.worker)
        self._add(connection, sorted(o for o in self._known if frontier is None or o < frontier))
        return self.images >= self._plan.quorum

    def finish(self, connection: Connection) -> None:
        """Add what lies behind units that never came."""
        self._add(connection, sorted(self._known))

    @property
    def gathered(self) -> Gathered:
        return Gathered(tuple(self._included), self.images, len(self._workers))

    def _add(self, connection: Connection, ordinals: Iterable[int]) -> None:
        for ordinal in ordinals:
            arrival = self._known[ordinal]
            vectors = self._decoded.get(ordinal) or self._read(connection, arrival)
            self.aggregate.add(vectors, arrival.images)
            self._included.append(arrival.id)
            self._decoded.pop(ordinal, None)
            del self._known[ordinal]

    def _read(self, connection: Connection, arrival: queue.Arrival) -> Vectors:
        payload = queue.payload(connection, arrival.id)
        if payload is None:
            raise PayloadError("its tensors are not in the database")
        return decode(payload, self._layout, self._plan.codec)
