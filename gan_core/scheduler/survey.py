"""One pass of the queue: read machines and trainings, place the workers, write it down, and say which coordinators to start.

Whoever is there looks: the class's own process, and every coordinator. A lock lets one look at a time, and a look is one
transaction, so that whoever dies in the middle has changed nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection

from gan_core.errors import TrainingError
from gan_core.machines import Machine
from gan_core.scheduler.outlook import Outlook, brought_in, cannot_ever, outlooks, too_large
from gan_core.scheduler.placement.place import Round, place
from gan_core.scheduler.placement.table import policy
from gan_core.settings import Settings
from gan_core.store.coordinator import trainings
from gan_core.store.scheduler import placements, submissions
from gan_core.store.scheduler.placements import Entry
from gan_core.units import TrainingState, counted

log = logging.getLogger("classgan.queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a class shares its machines."""

    placement: str = "balanced"
    max_running: int = 3
    max_wait: float = 4 * 3600.0  # seconds

    @classmethod
    def of(cls, settings: Settings) -> "Rules":
        return cls(
            placement=settings.placement, max_running=settings.max_running, max_wait=60 * settings.max_wait_minutes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything that a look saw and decided."""

    entries: dict[int, Entry]
    machines: list[Machine]
    waiting: int  # workers that are there and have no shift yet
    round: Round
    outlooks: dict[int, Outlook]  # of trainings without a coordinator

    def reason(self, training_id: int) -> str:
        """What this training does or waits for."""
        if training_id in self.outlooks:
            return self.outlooks[training_id].reason
        if self.entries[training_id].state is TrainingState.QUEUED:
            return "its turn has come: its coordinator is being started"
        workers = sum(p.training == training_id for p in self.round.placements.values())
        if not workers:
            wanted = self.entries[training_id].wanted
            if self.waiting:
                return f"has no workers yet: {brought_in(self.waiting)}"
            return (
                cannot_ever(wanted, self.machines)
                or "has no workers now: those that fit are offline, or work for trainings that come before it"
            )
        small = too_large(self.entries[training_id].wanted, self.machines)
        return f"runs with {counted(workers, 'worker')}{'; ' + small if small else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A training whose coordinator Prefect is to start."""

    training_id: int
    name: str
    plan: dict[str, Any]
    number: int  # of the run: asked for twice, it is one
    silent: float  # seconds since a coordinator was heard of


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is to be done outside the database after a look."""

    calls: tuple[Call, ...] = ()
    needs_shifts: bool = False  # something waits, and no coordinator is there to bring workers in


def survey(connection: Connection, rules: Rules) -> Survey:
    """Look, and change nothing."""
    found = placements.entries(connection)
    machines, waiting = placements.machines(connection), placements.waiting(connection)
    limits = {"max_running": rules.max_running, "max_wait": rules.max_wait}
    round_ = place(
        machines, [e.wanted for e in found], policy(rules.placement), used=placements.used(connection), **limits
    )
    ahead = outlooks(machines, round_, datetime.now(UTC), waiting=waiting, **limits)
    return Survey(
        entries={e.wanted.id: e for e in found},
        machines=machines,
        waiting=waiting,
        round=round_,
        outlooks={outlook.training: outlook for outlook in ahead},
    )


def look(connection: Connection, rules: Rules) -> Turn:
    """Decide and write it down; nothing happens while somebody else does."""
    with connection.transaction():
        row = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (placements.LOCK,)).fetchone()
        if not (row and row[0]):
            return Turn()
        seen = survey(connection, rules)
        placements.record(connection, seen.round.placements, seen.round.served, seen.round.in_turn)
        for training_id in seen.round.put_back:
            submissions.put_back(
                connection, training_id, "a training that comes before it took its place; it goes on by itself"
            )
        for outlook in seen.outlooks.values():
            submissions.say(connection, outlook.training, outlook.reason)
        orphans = [
            e.wanted.id
            for e in seen.entries.values()
            if e.is_called
            and e.state is not TrainingState.QUEUED
            and not e.is_led
            and e.wanted.id not in seen.round.put_back
        ]
        called = [*seen.round.start, *orphans]
        submissions.call(connection, called)
    calls = tuple(_call(seen.entries[training_id]) for training_id in called)
    running = any(e.is_led for e in seen.entries.values())
    return Turn(calls=calls, needs_shifts=bool(seen.entries) and not running)


def _call(entry: Entry) -> Call:
    return Call(
        training_id=entry.wanted.id, name=entry.wanted.name, plan=entry.plan, number=entry.calls, silent=entry.silent
    )


def move(connection: Connection, name: str, after: str, rules: Rules) -> str:
    """Put a queued training at the top, or right behind another one; says what it did.

    Raises:
        TrainingError: one of them isn't in the queue.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (placements.LOCK,))
        order = survey(connection, rules).round.order
        queued = [w for w in order if not w.started]
        mine = next((w for w in queued if w.name == name), None)
        if mine is None:
            raise TrainingError(_not_queued(connection, name))
        others = [w for w in queued if w is not mine]
        if not after:
            priority = max((w.priority for w in queued), default=mine.priority)
            submissions.set_places(connection, _before([], mine.id, others, priority), priority)
            return f"{name} is at the top of the queue{_new_priority(mine.priority, priority)}."
        anchor = next((n for n, w in enumerate(others) if w.name == after), None)
        if anchor is None:
            raise TrainingError(_not_queued(connection, after))
        priority = others[anchor].priority
        ahead = [w.id for w in others[: anchor + 1] if w.priority == priority]
        submissions.set_places(connection, _before(ahead, mine.id, others[anchor + 1 :], priority), priority)
        return f"{name} comes right after {after}{_new_priority(mine.priority, priority)}."


def _before(ahead: Sequence[int], mine: int, behind: Sequence, priority: int) -> list[int]:
    """Those with a place by hand keep coming after it in the order they had."""
    return [*ahead, mine, *(w.id for w in behind if w.priority == priority and w.place is not None)]


def _new_priority(before: int, now: int) -> str:
    return "" if before == now else f"; its priority is {now} now, it was {before}"


def _not_queued(connection: Connection, name: str) -> str:
    return f"{name!r} is {trainings.get(connection, name).state}, so it isn't in the queue."


def queue_rows(seen: Survey) -> list[dict[str, Any]]:
    """The queue as plain values: running ones first as they come, then the waiting ones by position."""
    rows = []
    for w in seen.round.order:
        ahead = seen.outlooks.get(w.id)
        rows.append(
            {
                "name": w.name,
                "state": str(seen.entries[w.id].state),
                "owner": w.owner,
                "priority": w.priority,
                "position": ahead.position if ahead else None,
                "workers": sum(p.training == w.id for p in seen.round.placements.values()),
                "earliest": ahead.earliest.isoformat() if ahead and ahead.earliest else None,
                "latest": ahead.latest.isoformat() if ahead and ahead.latest else None,
                "estimate": ahead.estimate() if ahead else "",
                "reason": seen.reason(w.id),
                "never": bool(ahead and ahead.never),
            }
        )
    return sorted(rows, key=lambda r: r["position"] or 0)
