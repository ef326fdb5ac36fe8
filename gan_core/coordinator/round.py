"""Collects the contributions of one iteration into their sum, in unit order whatever order they arrive in.

Each is looked at twice: alone when it comes, beside the others when the round is about to close. One that is refused
then is taken out of the sum exactly: the sum is built again, from the payloads of those that stay.
"""

import logging
import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from psycopg import Connection

from gan_core.coordinator.gates import Gates, Sketch, Sketcher
from gan_core.errors import PayloadError
from gan_core.layout import PARTS, Layout, Part, Vectors
from gan_core.networks.update import Aggregate
from gan_core.plan import Plan
from gan_core.policies.codecs import decode
from gan_core.store.coordinator import unit_queue
from gan_core.units import counted

log = logging.getLogger("classgan.rounds")

LOOKAHEAD = 256 << 20  # bytes of decoded contributions kept until their turn in the sum; later ones are read again
DEVIATIONS = 6.0  # how many (scaled) median deviations later than usual an answer may come
USUAL = 3.0  # times the usual time that it may take in any case: until then a backup has come
SLACK = 0.5  # seconds that a machine may be late in any case when a round closes in time, but in a large class
KNOWN = 5  # arrivals from which on a deadline is learnt from them
EXPLODED = 100.0  # times the usual length: no honest contribution of a training that still learns
ENOUGH = 8  # contributions that make a length "usual"


@dataclass(frozen=True, slots=True)
class Gathered:
    """What an iteration closed with."""

    contributions: tuple[int, ...]
    images: int
    workers: int
    exploded: str = ""  # why nothing of it may be used: the training's fault, and nobody's who computed


class Lengths:
    """The lengths (Euclidean norms) of this training's latest contributions: what an exploding one is told by.

    Only of those that entered the weights, and one voice a student: or whoever sends many tiny ones first could have
    everybody else refused. A discriminator that is right about everything learns next to nothing for a while, and then again
    something: what is as long as an ordinary step (`at_least`) counts as usual in any case.
    """

    def __init__(self) -> None:
        self._known: dict[Part, dict[str, deque[float]]] = {"generator": {}, "discriminator": {}}
        self.at_least: Mapping[Part, float] = {}  # set before each round: `update.step_lengths`

    def check(self, vectors: Vectors) -> None:
        """Raises PayloadError if this contribution is EXPLODED times longer than usual."""
        for part, students in self._known.items():
            if sum(map(len, students.values())) < ENOUGH:
                continue
            # Of two students the one with longer contributions is the measure: the other can't have him refused.
            usual = statistics.median_high(statistics.median(own) for own in students.values())
            usual = max(usual, self.at_least.get(part, 0.0))
            if (length := float(vectors.part(part).norm())) > EXPLODED * usual > 0:
                raise PayloadError(
                    f"its {part} part has length {length:.3g}, more than {EXPLODED:g} times the usual {usual:.3g}"
                )

    def remember(self, student: str, lengths: Mapping[Part, float]) -> None:
        """Take a contribution into account that entered the weights."""
        for part, students in self._known.items():
            students.setdefault(student, deque(maxlen=64)).append(lengths[part])


def deadline_after(arrivals: Sequence[float], plan: Plan) -> float:
    """Seconds from a round's opening after which the minimum quorum suffices.

    The class's own median arrival plus DEVIATIONS deviations, at least USUAL times the median, within the plan's bounds.

    Args:
        arrivals: seconds after which each contribution of the latest rounds came.
    """
    if len(arrivals) < KNOWN:
        return plan.deadline_ceiling
    middle = statistics.median(arrivals)
    spread = 1.4826 * statistics.median(abs(seconds - middle) for seconds in arrivals)  # equals σ for normal arrivals
    return min(plan.deadline_ceiling, max(plan.deadline_floor, USUAL * middle, middle + DEVIATIONS * spread))


def grace_after(arrivals: Sequence[float], seconds: float, most: float) -> float:
    """Seconds from the opening of a round that closes after `seconds`, until which its answers are waited for.

    What machines send when their time is over comes within a moment: so much as is usual in this class, plus DEVIATIONS
    deviations. While that isn't known, half of the round. Of n machines one brings an n-th of the round, and while it is waited
    for nobody computes: so SLACK is at most an n-th of its seconds.

    Args:
        arrivals: as `deadline_after`'s, of the LATEST rounds.
        most: seconds that it may be.
    """
    most = max(most, seconds + SLACK)
    late = [arrival - seconds for arrival in arrivals if arrival > 0.9 * seconds]
    if len(late) < KNOWN:
        return min(most, 1.5 * seconds + SLACK)
    middle = statistics.median(late)
    spread = 1.4826 * statistics.median(abs(each - middle) for each in late)
    slack = min(SLACK, seconds * unit_queue.LATEST / len(late))
    return min(most, seconds + max(slack, middle + DEVIATIONS * spread))


class Round:
    """Fed by `look` as often as something may have come; closed by `finish`, unless that finds something odd.

    Args:
        quorum: images that close it; infinite where it closes in time.
        lengths: of earlier contributions; this round's are added.
        gates: of this training.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        training_id: int,
        iteration: int,
        quorum: float,
        lengths: Lengths,
        gates: Gates,
    ) -> None:
        self.quorum = quorum
        self._plan, self._layout, self._lengths, self._gates = plan, layout, lengths, gates
        self._training_id, self._iteration = training_id, iteration
        self._known: dict[int, unit_queue.Arrival] = {}  # by first ordinal: those not yet in the sum
        self._decoded: dict[int, Vectors] = {}  # some of them, decoded ahead of their turn
        self._included: list[int] = []
        self._taken: dict[int, tuple[unit_queue.Arrival, Sketch]] = {}  # in the sum or not, by id
        self._odd: dict[int, str] = {}  # of those: what is to be refused, and why
        self._exploding: dict[int, str] = {}  # of those: what is far longer than in earlier rounds
        self._exploded = ""
        self._sketcher = Sketcher(layout)
        self._lookahead = max(4, LOOKAHEAD // (4 * sum(map(layout.length, PARTS))))
        self.aggregate = Aggregate(plan)
        self.progress = unit_queue.Progress(open=0, leased=0, done=0, frontier=None, workers_online=0)

    def look(self, connection: Connection) -> bool:
        """Take in what has arrived; True when the quorum is there, or the time is over, or when nothing more can come."""
        # The frontier first: whatever lies before it had arrived by then, so the list read next holds all of it.
        self.progress = unit_queue.progress(connection, self._training_id, self._iteration)
        frontier = self.progress.frontier
        for arrival in unit_queue.arrivals(connection, self._training_id, self._iteration):
            if arrival.id in self._taken:
                continue
            try:
                vectors = self._read(connection, arrival)
                sketch = self._sketcher.sketch(arrival.id, arrival.student, arrival.images, vectors)
            except PayloadError as exc:
                self._refuse(connection, arrival, str(exc))
                return False  # its units are open again: look anew before anything behind them is added
            try:
                self._lengths.check(vectors)
            except PayloadError as exc:
                self._exploding[arrival.id] = str(exc)  # whose fault that is, the others of this round tell
            self._known[arrival.first_ordinal] = arrival
            self._taken[arrival.id] = arrival, sketch
            if len(self._decoded) < self._lookahead:
                self._decoded[arrival.first_ordinal] = vectors
        self._add(connection, sorted(o for o in self._known if frontier is None or o < frontier))
        more = self.progress.leased or (self.progress.open and not self.progress.is_over)
        return self.images >= self.quorum or not more

    def finish(self, connection: Connection) -> bool:
        """Compare the contributions, then add what lies behind units that never came.

        Returns:
            False when some were refused: their units are open again, and the round goes on.
        """
        # Kept until each is refused: a connection that breaks in between lets this be called again.
        if not self._odd and (exploding := {id_: why for id_, why in self._exploding.items() if id_ in self._taken}):
            self._exploded = self._explosion(exploding)
            if self._exploded:
                return True
            self._odd = exploding
        self._odd = self._odd or self._gates.refusals(
            self._plan, [sketch for _, sketch in self._taken.values()], self._lengths.at_least
        )
        if not self._odd:
            self._add(connection, sorted(self._known))
            for arrival, sketch in self._taken.values():
                self._lengths.remember(arrival.student, sketch.lengths)
            return True
        while self._odd:
            odd, reason = next(iter(self._odd.items()))
            self._refuse(connection, self._taken[odd][0], reason)
            del self._taken[odd], self._odd[odd]
        self._known = {arrival.first_ordinal: arrival for arrival, _ in self._taken.values()}
        self._included, self.aggregate = [], Aggregate(self._plan)
        self._decoded.clear()
        return False

    def _explosion(self, exploding: Mapping[int, str]) -> str:
        """What to say if most contributions of most students are that long: they all computed from weights that ask for it."""
        by_student: dict[str, list[bool]] = {}
        for arrival, _ in self._taken.values():
            by_student.setdefault(arrival.student, []).append(arrival.id in exploding)
        mostly = [student for student, own in by_student.items() if 2 * sum(own) > len(own)]
        if 2 * len(mostly) <= len(by_student):
            return ""
        of = f"{len(mostly)} of {counted(len(by_student), 'student')}"
        return f"the contributions of {of} exploded, so the training did; of one, {next(iter(exploding.values()))}"

    @property
    def images(self) -> int:
        """Of everything that was taken in."""
        return sum(arrival.images for arrival, _ in self._taken.values())

    @property
    def gathered(self) -> Gathered:
        workers = {arrival.worker for arrival, _ in self._taken.values()}
        return Gathered(tuple(self._included), self.images, len(workers), self._exploded)

    def _refuse(self, connection: Connection, arrival: unit_queue.Arrival, reason: str) -> None:
        log.warning("Refused a contribution of %s: %s", arrival.worker, reason)
        unit_queue.refuse(connection, arrival.id, reason)

    def _add(self, connection: Connection, ordinals: Iterable[int]) -> None:
        for ordinal in ordinals:
            arrival = self._known[ordinal]
            vectors = self._decoded.get(ordinal) or self._read(connection, arrival)
            self.aggregate.add(vectors, arrival.images)
            self._included.append(arrival.id)
            self._decoded.pop(ordinal, None)
            del self._known[ordinal]

    def _read(self, connection: Connection, arrival: unit_queue.Arrival) -> Vectors:
        payload = unit_queue.payload(connection, arrival.id)
        if payload is None:
            raise PayloadError("its tensors are not in the database")
        return decode(payload, self._layout, self._plan.codec)
