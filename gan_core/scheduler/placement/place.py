"""Which training each machine works for: the rules that hold under every policy. The policy gives out what is left.

Trainings are served in their order. Each gets its least number of workers or none (gang); one that can't get them is
passed over, and those behind it fill the gap until it can (backfill). Since a machine changes over at the end of a unit,
whoever fills a gap never holds up who comes first by more than that. What is left within a priority goes, machine by
machine, to the lowest bid of the policy; only what nobody of that priority can use goes to the next one.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from gan_core.machines import Machine, Placement, Policy, Standing, Wanted, fits, waste


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one look at machines and trainings led to."""

    order: tuple[Wanted, ...]
    placements: Mapping[int, Placement]  # by machine
    served: frozenset[int]  # trainings that have their least number of workers
    in_turn: frozenset[int]  # those of them that nobody before them waits for
    start: tuple[int, ...]  # served, without a coordinator
    put_back: tuple[int, ...]  # with a coordinator and without workers, and another one needs the room


def is_lifted(wanted: Wanted, max_wait: float) -> bool:
    """Whether it has waited so long that its least number of workers comes before every priority."""
    return wanted.waited >= max_wait


def in_order(wanted: Iterable[Wanted], used: Mapping[str, float], max_wait: float) -> list[Wanted]:
    """Who comes first: who waited too long, the oldest first; then by priority, whose turn it is already, where a person put it; then each
    owner's first before anybody's second, the owner who had least lately, and age.

    Args:
        used: share of the class that each owner had over the last hours, 0 to 1.
        max_wait: seconds of waiting that lift a training.
    """
    theirs = Counter(w.owner for w in wanted if w.in_turn)
    keys: dict[int, tuple] = {}
    by_age = sorted(wanted, key=lambda w: (w.place is None, w.place or 0, w.queued_at, w.id))
    for w in sorted(by_age, key=lambda w: -w.priority):
        if is_lifted(w, max_wait):
            # Not by the time waited: it stands still while one runs, and they would swap at every look.
            keys[w.id] = (0, w.queued_at, w.id)
            continue
        before = 0 if w.in_turn else theirs[w.owner]
        theirs[w.owner] += not w.in_turn
        placed = float("inf") if w.place is None else w.place
        keys[w.id] = (1, -w.priority, not w.in_turn, placed, before, round(used.get(w.owner, 0), 2), w.queued_at, w.id)
    return sorted(by_age, key=lambda w: keys[w.id])


class Kind(NamedTuple):
    """Machines that are as good as each other for every training: the same hardware, about the same speed."""

    gpus: int
    memory_mb: int
    doubling: int  # of the speed: within one, the mean stands for all
    unfit: frozenset[int]  # trainings that it can't compute

    @classmethod
    def of(cls, machine: Machine) -> "Kind":
        doubling = round(math.log2(max(machine.speed, 1e-3)))
        return cls(machine.gpus, machine.memory_mb, doubling, machine.failed | machine.too_large)


@dataclass
class Pool:
    """Machines that nobody has yet."""

    free: dict[Kind, dict[int, Machine]] = field(default_factory=lambda: defaultdict(dict))
    own: dict[int, list[Machine]] = field(default_factory=lambda: defaultdict(list))  # by the training they work for

    @classmethod
    def of(cls, machines: Iterable[Machine]) -> "Pool":
        pool = cls()
        for m in sorted(machines, key=lambda m: (m.training is not None, m.speed, m.id)):  # idle ones first
            pool.free[Kind.of(m)][m.id] = m
            if m.training is not None:
                pool.own[m.training].append(m)
        return pool

    def kinds(self) -> list[tuple[Kind, Machine]]:
        """Kinds with a free machine, the smallest first, of those the fastest; with one machine of each."""
        some = ((kind, next(iter(machines.values()))) for kind, machines in self.free.items() if machines)
        return sorted(
            some, key=lambda pair: (pair[0].gpus, pair[0].memory_mb, -pair[0].doubling, sorted(pair[0].unfit))
        )

    def holds(self, machine: Machine) -> bool:
        return machine.id in self.free[Kind.of(machine)]

    def remove(self, machine: Machine) -> None:
        del self.free[Kind.of(machine)][machine.id]

    def gang(self, wanted: Wanted) -> list[Machine]:
        """Its least number of machines: those it has, then the tightest fit. None if there are too few.

        Of equally tight ones the smallest, and those that are of no use to somebody else: others may need more. Of equal
        ones the slowest, which leaves the policy the others to share out; the fastest, if it may have no more.
        """
        pace = -1 if wanted.max_workers == wanted.min_workers else 1
        mine = [m for m in self.own[wanted.id] if self.holds(m) and fits(m, wanted)]
        found = sorted(mine, key=lambda m: (waste(m, wanted), pace * m.speed, m.id))[: wanted.min_workers]
        fitting = [(kind, m) for kind, m in self.kinds() if fits(m, wanted)]

        def cost(pair: tuple[Kind, Machine]) -> tuple[float, ...]:
            kind, example = pair
            return waste(example, wanted), kind.gpus, kind.memory_mb, -len(kind.unfit), pace * kind.doubling

        for kind, _ in sorted(fitting, key=cost):
            for machine in self.free[kind].values():
                if len(found) >= wanted.min_workers:
                    return found
                if machine.training != wanted.id:
                    found.append(machine)
        return found if len(found) >= wanted.min_workers else []


def place(
    machines: Iterable[Machine],
    wanted: Sequence[Wanted],
    policy: Policy,
    *,
    max_running: int,
    max_wait: float = float("inf"),
    used: Mapping[str, float] | None = None,
) -> Round:
    """Place every machine that is online.

    Args:
        wanted: trainings that run or are queued.
        max_running: trainings that have workers at the same time, at most.
        max_wait: seconds after which a waiting training comes first, with its least number of workers.
        used: share of the class that each owner had lately, 0 to 1.
    """
    # In one order, whatever the rows': sums are rounded differently in another, and with them shares that people read.
    there = sorted((m for m in machines if m.online), key=lambda m: m.id)
    measured = [m.speed for m in there if m.speed]
    usual = sum(measured) / len(measured) if measured else 1.0
    there = [m if m.speed else replace(m, speed=usual) for m in there]  # not measured yet: as fast as the others
    order = in_order(wanted, used or {}, max_wait)
    hall = _Hall(Pool.of(there), policy, sum(m.speed for m in there) or 1.0, used or {}, bool(measured))
    for w in order:
        if is_lifted(w, max_wait):
            hall.serve(w, max_running)
    for _, level in groupby(sorted(order, key=lambda w: -w.priority), key=lambda w: w.priority):
        same = list(level)
        for w in same:
            if w.id not in hall.standings:
                hall.serve(w, max_running)
        hall.share_out([w for w in same if w.id in hall.standings])
    served, waiting, in_turn = frozenset(hall.standings), False, set[int]()
    for w in order:
        if w.id not in served:
            waiting = True
        elif w.in_turn or not waiting:
            in_turn.add(w.id)
    new = [w.id for w in order if w.id in served and not w.started]
    idle = [w.id for w in order if w.started and w.id not in served]
    room = max_running - sum(w.started for w in order)
    back = idle[max(0, len(idle) - max(0, len(new) - max(0, room))) :] if new else []
    return Round(
        order=tuple(order),
        placements=hall.placements,
        served=served,
        in_turn=frozenset(in_turn),
        start=tuple(new[: max(0, room + len(back))]),
        put_back=tuple(back),
    )


@dataclass
class _Hall:
    """One round in the making."""

    pool: Pool
    policy: Policy
    speed: float  # of the whole class
    used: Mapping[str, float]
    is_measured: bool
    standings: dict[int, Standing] = field(default_factory=dict)
    placements: dict[int, Placement] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of the class's speed, by owner

    def serve(self, wanted: Wanted, max_running: int) -> None:
        """Give it its least number of workers, or nothing."""
        if len(self.standings) >= max_running or not (gang := self.pool.gang(wanted)):
            return
        lately = self.used.get(wanted.owner, 0)
        self.standings[wanted.id] = Standing(wanted=wanted, owner_used=lately, is_measured=self.is_measured)
        number = "the worker" if wanted.min_workers == 1 else f"one of the {wanted.min_workers} workers"
        for machine in gang:
            self.give(machine, wanted, f"{number} that it needs at least")

    def give(self, machine: Machine, wanted: Wanted, because: str) -> None:
        self.pool.remove(machine)
        self.placements[machine.id] = Placement(machine=machine.id, training=wanted.id, because=because)
        self.count(wanted, machine.speed)

    def count(self, wanted: Wanted, speed: float) -> None:
        before = self.standings[wanted.id]
        self.shares[wanted.owner] += speed / self.speed
        self.standings[wanted.id] = replace(before, workers=before.workers + 1, speed=before.speed + speed)

    def current(self, wanted: Wanted) -> Standing:
        return replace(self.standings[wanted.id], owner_share=self.shares[wanted.owner])

    def has_room(self, wanted: Wanted) -> bool:
        return wanted.max_workers is None or self.standings[wanted.id].workers < wanted.max_workers

    def share_out(self, served: Sequence[Wanted]) -> None:
        """Give these all machines that are left and of use to them."""
        for wanted in served:
            for machine in self.pool.own[wanted.id]:
                if machine.settled and self.pool.holds(machine) and fits(machine, wanted) and self.has_room(wanted):
                    self.give(machine, wanted, "it has only just begun there")
        for kind, example in self.pool.kinds():
            self._share_out(kind, example, [w for w in served if fits(example, w)])

    def _share_out(self, kind: Kind, example: Machine, served: Sequence[Wanted]) -> None:
        """Count first who gets how many of this kind; then everybody keeps those they have, and nobody moves for nothing."""
        free = self.pool.free[kind]
        speed = sum(m.speed for m in free.values()) / len(free)
        heap = [(self.policy(example, self.current(w)).score, n, w) for n, w in enumerate(served)]
        heapq.heapify(heap)
        won: dict[int, list[str]] = defaultdict(list)
        left = len(free)
        while left and heap:
            score, n, w = heapq.heappop(heap)
            if not self.has_room(w):
                continue
            bid = self.policy(example, self.current(w))
            if bid.score > score:  # scores only grow: what lay in the heap is a lower bound, renewed when looked at
                heapq.heappush(heap, (bid.score, n, w))
                continue
            won[w.id].append(bid.because)
            self.count(w, speed)
            left -= 1
            heapq.heappush(heap, (bid.score, n, w))
        rest = [m for m in free.values() if m.training not in won]
        for training, reasons in won.items():
            mine = [m for m in free.values() if m.training == training]
            rest += mine[len(reasons) :]
            for machine in mine[: len(reasons)]:
                self._put(machine, training, reasons.pop(0))
        for training, reasons in won.items():
            for because in reasons:
                self._put(rest.pop(0), training, because)

    def _put(self, machine: Machine, training: int, because: str) -> None:
        self.pool.remove(machine)
        self.placements[machine.id] = Placement(machine=machine.id, training=training, because=because)
