"""The outlook of a queued training, in words: its position, when it will start, and why it waits."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gan_core.machines import Machine, Wanted, fits
from gan_core.scheduler.placement.place import Round, is_lifted
from gan_core.units import counted

QUICK, SLOW = 1.25, 0.6  # pace against the measured speeds: the two ends of an estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What lies before one queued training."""

    training: int
    position: int  # among the queued ones, from 1
    earliest: datetime | None  # of its start; None if nobody can say
    latest: datetime | None
    reason: str  # why it waits, one sentence without a full stop
    never: bool  # no machine that was ever here could serve it

    def estimate(self) -> str:
        """ "14:05 to 14:20", or "unknown"."""
        if self.earliest is None or self.latest is None:
            return "unknown"
        first, last = clock(self.earliest), clock(self.latest)
        return first if first == last else f"{first} to {last}"


def outlooks(
    machines: Sequence[Machine], round_: Round, now: datetime, *, max_running: int, max_wait: float, waiting: int = 0
) -> list[Outlook]:
    """Position, estimate and reason of each training without a coordinator, in the order in which they come.

    Args:
        machines: every machine that was ever here.
        round_: as the machines that are online were placed just now.
        waiting: workers that are there and have no shift yet, so that nobody knows what they can do.
    """
    queued = [w for w in round_.order if not w.started]
    quick, slow = (_starts(machines, round_, pace, max_running) for pace in (QUICK, SLOW))
    busy = _busy_until(machines, round_)
    found = []
    for number, w in enumerate(queued, 1):
        able = [m for m in machines if fits(m, w)]
        never = len(able) + waiting < w.min_workers
        early, late = sorted((quick.get(w.id, -1.0), slow.get(w.id, -1.0)))
        known = len(able) >= w.min_workers and early >= 0
        found.append(
            Outlook(
                training=w.id,
                position=number,
                earliest=now + timedelta(seconds=early) if known else None,
                latest=now + timedelta(seconds=late) if known else None,
                reason=_reason(w, machines, able, round_, busy, now, max_running, max_wait, waiting),
                never=never,
            )
        )
    return found


def _reason(
    w: Wanted,
    machines: Sequence[Machine],
    able: Sequence[Machine],
    round_: Round,
    busy: Mapping[int, float],
    now: datetime,
    max_running: int,
    max_wait: float,
    waiting: int,
) -> str:
    if len([m for m in able if m.online]) < w.min_workers <= len([m for m in able if m.online]) + waiting:
        return f"{brought_in(waiting)}; it starts within seconds if they are what it needs"
    if len(able) < w.min_workers:
        return cannot_ever(w, machines)
    online = [m for m in able if m.online]
    need = f"needs {counted(w.min_workers, 'worker')}{' with ' + w.needs() if w.needs() else ''}"
    if len(online) < w.min_workers:
        such = f"{_count(len(online))} online, {len(able)} {'is' if len(able) == 1 else 'are'} known"
        missing = w.min_workers - len(online)
        return f"{need}; {such}: it starts when {missing} more {'is' if missing == 1 else 'are'} online"
    if w.id in round_.start:
        return "its turn has come: its coordinator is being started"
    if w.id in round_.served:
        return "its turn has come: it starts when another training has given its place up"
    ahead = " (it has waited so long that it comes next)" if is_lifted(w, max_wait) else ""
    if len(round_.served) >= max_running:
        trainings = (
            f"{max_running} trainings run at the same time" if max_running != 1 else "one training runs at a time"
        )
        return f"{trainings}, and all places are taken{_until(busy.values(), now)}{ahead}"
    each = "both" if len(online) == 2 else "all" if len(online) > 2 else ""
    taken = f"{_count(len(online))} online, {each + ' ' if each else ''}busy"
    ends = sorted(busy.get(round_.placements[m.id].training, 0.0) for m in online if m.id in round_.placements)
    free = len(online) - len(ends)
    if free >= w.min_workers or not ends:
        return f"{need}; {_count(len(online))} online, but trainings before it use them{ahead}"
    return f"{need}; {taken}{_until(ends[w.min_workers - free - 1 :][:1], now)}{ahead}"


def brought_in(waiting: int) -> str:
    """What becomes of workers that are there and have no shift."""
    return (
        "1 worker has joined and is brought in now"
        if waiting == 1
        else f"{waiting} workers have joined and are brought in now"
    )


def cannot_ever(w: Wanted, machines: Sequence[Machine]) -> str:
    """Why this training will wait for ever, unless somebody joins; "" if it won't."""
    able = [m for m in machines if fits(m, w)]
    if len(able) >= w.min_workers:
        return ""
    if not machines:
        return "no worker has joined yet: it waits until one joins"
    kinds = sorted({(m.gpus, m.memory_mb) for m in machines})
    best = f"the largest: {_has(*kinds[-1])}"
    needs = w.needs() or "what it takes"
    if not able and too_large(w, machines):
        return f"{too_large(w, machines)}: it waits until a larger one joins, or takes less with a smaller batch_size"
    if not able:
        return f"no machine of this class has {needs} ({best}); it waits until such a machine joins"
    has = f" with {w.needs()}" if w.needs() else ""
    return (
        f"needs {counted(w.min_workers, 'worker')}{has}, but the class has only {len(able)}; it waits until more join"
    )


def too_large(w: Wanted, machines: Sequence[Machine]) -> str:
    """How many machines haven't the memory for this training, in words; "" if all have."""
    small = sum(w.id in m.too_large for m in machines)
    if not small:
        return ""
    whose = f"{counted(small, 'machine')} of {len(machines)} {'has' if small == 1 else 'have'} no"
    if small == len(machines):
        whose = "no machine of this class has"
    return f"one step takes {w.step_mb:,} MB of memory, and {whose} room for it"


def _has(gpus: int, memory_mb: int) -> str:
    if not gpus:
        return "no GPU"
    return f"{counted(gpus, 'GPU')} with {memory_mb:,} MB"


def _count(count: int) -> str:
    return "1 such worker is" if count == 1 else f"{count or 'no'} such workers are"


def _until(seconds, now: datetime) -> str:
    """When the first of them ends; "" if nobody knows."""
    first = min((s for s in seconds if s < float("inf")), default=None)
    return "" if first is None else f" until about {clock(now + timedelta(seconds=first))}"


def clock(moment: datetime) -> str:
    """Local time to the minute; with the day, if it isn't today's."""
    local = moment.astimezone()
    return local.strftime("%H:%M" if local.date() == datetime.now(local.tzinfo).date() else "%d %b %H:%M")


def _busy_until(machines: Sequence[Machine], round_: Round) -> dict[int, float]:
    """Seconds until each served training is done at the speed of its machines; infinite where that isn't known."""
    speed: dict[int, float] = {}
    for m in machines:
        if m.id in round_.placements:
            training = round_.placements[m.id].training
            speed[training] = speed.get(training, 0.0) + m.speed
    left = {w.id: w.images_left for w in round_.order}
    return {t: left[t] / s if s else float("inf") for t, s in speed.items()}


def _starts(machines: Sequence[Machine], round_: Round, pace: float, max_running: int) -> dict[int, float]:
    """Seconds until each queued training would start, if all machines were `pace` times as fast as measured.

    A list schedule: each in its order takes the machines that are free first, and keeps them until it is done. The quick
    end of the estimate lets those before it use all that they may; the slow end, the least that they need.
    """
    there = [m for m in machines if m.online]
    usual = [m.speed for m in there if m.speed]
    fallback = sum(usual) / len(usual) if usual else 0.0
    ends = {t: s / pace for t, s in _busy_until(machines, round_).items()}
    running = [w for w in round_.order if w.started]
    free_at = {m.id: 0.0 for m in there}
    for m in there:
        if m.id in round_.placements and (training := round_.placements[m.id].training) in {w.id for w in running}:
            free_at[m.id] = ends[training]
    places = [ends.get(w.id, 0.0) for w in running][:max_running]
    places += [0.0] * (max_running - len(places))
    heapq.heapify(places)
    starts: dict[int, float] = {}
    for w in (w for w in round_.order if not w.started):
        able = sorted((m for m in there if fits(m, w)), key=lambda m: (free_at[m.id], m.id))
        if len(able) < w.min_workers or not fallback:
            continue
        start = max(free_at[able[w.min_workers - 1].id], places[0])
        if start == float("inf"):
            continue
        most = w.min_workers if pace < 1 else max(w.min_workers, w.max_workers or len(able))
        team = [m for m in able[:most] if free_at[m.id] <= start]
        ended = start + w.images_left / (pace * sum(m.speed or fallback for m in team))
        for m in team:
            free_at[m.id] = ended
        heapq.heapreplace(places, ended)
        starts[w.id] = start
    return starts
