"""A day of a large class on a virtual clock: what each placement policy makes of the same machines and the same queue."""

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.options import Options
from bench.report import Judgement, Row, Section
from gan_core.machines import Machine, Wanted
from gan_core.scheduler.placement.place import place
from gan_core.scheduler.placement.table import PLACEMENTS

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "placement.png"
HOUR = 3_600.0
TICK = 60.0  # seconds; a machine changes over within a unit
SETTLED_TICKS = 5  # as long as placements.SETTLED_SECONDS
KINDS = (  # GPUs, MB, images a second, share of the class
    (0, 0, 60.0, 0.35),
    (0, 0, 120.0, 0.25),
    (1, 4_096, 400.0, 0.15),
    (1, 8_192, 900.0, 0.12),
    (1, 24_576, 3_000.0, 0.08),
    (2, 24_576, 5_000.0, 0.05),
)
OWNERS = "aaaaaaaaaabbbbbcccdde"  # some groups submit ten times as much as others
MAX_RUNNING, MAX_WAIT = 12, 4 * HOUR


@dataclass
class Day:
    """What happened, for one policy."""

    busy: list[float] = field(default_factory=list)  # share of the speed that was there and of use, tick by tick
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds from submission to the first workers
    turnarounds: list[float] = field(default_factory=list)  # seconds from submission to the end
    shares: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # of owners while they wanted any
    moves: int = 0  # of a worker from one training to another
    looks: list[float] = field(default_factory=list)  # seconds of computing

    def fairness(self) -> float:
        """Jain's index of the owners' mean shares while several wanted some; 1 is equal. Source: Jain et al. 1984."""
        means = [statistics.fmean(values) for values in self.shares.values() if values]
        return sum(means) ** 2 / (len(means) * sum(m * m for m in means)) if means else 1.0


def fleet(rng: random.Random, workers: int) -> list[Machine]:
    kinds = rng.choices(KINDS, [k[3] for k in KINDS], k=workers)
    return [
        Machine(id=n, gpus=gpus, memory_mb=memory, speed=speed * rng.uniform(0.7, 1.3), online=rng.random() < 0.5)
        for n, (gpus, memory, speed, _) in enumerate(kinds)
    ]


def submissions(rng: random.Random, trainings: int, images: float) -> list[Wanted]:
    """In the first half of the day; sizes differ by a factor of a hundred, and add up to `images`."""
    sizes = [rng.lognormvariate(0, 1.2) for _ in range(trainings)]
    needs = [(0, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 5), (0, 0, 20), (1, 4_096, 1), (1, 16_384, 4), (2, 0, 1)]
    wanted = []
    for number, size in enumerate(sizes):
        gpus, memory, least = rng.choice(needs)
        wanted.append(
            Wanted(
                id=number,
                owner=rng.choice(OWNERS),
                priority=rng.choice([0] * 9 + [5]),
                gpus=gpus,
                memory_mb=memory,
                min_workers=least,
                max_workers=rng.choice([None, None, None, 30]),
                images_left=int(images * size / sum(sizes)),
                queued_at=rng.uniform(0, 12 * HOUR),
            )
        )
    return wanted


def live(name: str, machines: Sequence[Machine], wanted: Sequence[Wanted], hours: float, seed: int) -> Day:
    """One day under this policy: the same machines come and go, the same trainings are submitted."""
    rng, day = random.Random(seed), Day()
    here = list(machines)
    left = {w.id: float(w.images_left) for w in wanted}
    waited, served, started, in_turn = dict.fromkeys(left, 0.0), set[int](), set[int](), frozenset[int]()
    lately: list[dict[str, float]] = []
    moved_at = {m.id: -SETTLED_TICKS for m in here}
    for tick in range(int(hours * HOUR / TICK)):
        now = tick * TICK
        here = [  # sessions of three hours, two hours between them, on average
            replace(m, online=(rng.random() > TICK / (3 * HOUR)) if m.online else (rng.random() < TICK / (2 * HOUR)))
            for m in here
        ]
        queue = [
            replace(
                w,
                images_left=max(1, int(left[w.id])),
                waited=waited[w.id],
                started=w.id in started,
                in_turn=w.id in in_turn,
            )
            for w in wanted
            if w.queued_at <= now and left[w.id] > 0
        ]
        used = {o: statistics.fmean(h.get(o, 0.0) for h in lately) for o in set(OWNERS)} if lately else {}
        began = time.process_time()
        found = place(here, queue, PLACEMENTS[name], max_running=MAX_RUNNING, max_wait=MAX_WAIT, used=used)
        day.looks.append(time.process_time() - began)
        given: dict[str, float] = defaultdict(float)
        for m in here:
            if m.id in found.placements:
                training = found.placements[m.id].training
                left[training] -= m.speed * TICK
                given[wanted[training].owner] += m.speed
                day.moves += m.training is not None and m.training != training
        for m in here:
            if m.id in found.placements and found.placements[m.id].training != m.training:
                moved_at[m.id] = tick
        here = [_placed(m, found.placements, tick - moved_at[m.id] < SETTLED_TICKS) for m in here]
        for w in queue:
            if w.id not in found.served:
                waited[w.id] += TICK
            elif w.id not in served:
                served.add(w.id)
                day.waits.append(now - w.queued_at)
            if left[w.id] <= 0:
                day.turnarounds.append(now + TICK - w.queued_at)
        started, in_turn = (started | set(found.start)) - set(found.put_back), found.in_turn
        started = {t for t in started if left[t] > 0}
        there = sum(m.speed for m in here if m.online)
        total = sum(given.values())
        if queue and there:
            day.busy.append(total / there)
        wanting = {w.owner for w in queue if w.id in found.served and not w.gpus and w.max_workers is None}
        if len(wanting) > 1 and total:  # each of them could use any machine, and any number
            for owner in wanting:
                day.shares[owner].append(given[owner] / total * len(wanting))
        lately = [*lately[-int(4 * HOUR / TICK) :], {o: s / total for o, s in given.items()}] if total else lately
        day.running.append(len(found.served))
        day.waiting.append(len(queue) - len(found.served))
    return day


def _placed(machine: Machine, placements: Mapping, settled: bool) -> Machine:
    mine = placements.get(machine.id)
    return replace(machine, training=mine.training if mine else None, settled=settled and mine is not None)


def run(options: Options) -> Section:
    workers, trainings, hours = (20, 8, 2.0) if options.quick else (200, 60, 24.0)
    rng = random.Random(6)
    machines = fleet(rng, workers)
    capacity = 0.6 * sum(m.speed for m in machines) * hours * HOUR  # about three fifths of them are there
    wanted = submissions(rng, trainings, 0.8 * capacity)
    days = {name: live(name, machines, wanted, hours, seed=7) for name in PLACEMENTS}
    rows = []
    for name, day in days.items():
        waits = sorted(day.waits) or [0.0]
        slowest = max(day.looks) * 1_000
        figures = {
            "busy": statistics.fmean(day.busy),
            "median_wait_minutes": statistics.median(waits) / 60,
            "longest_wait_minutes": waits[-1] / 60,
            "turnaround_hours": statistics.fmean(day.turnarounds or [0.0]) / HOUR,
            "done": len(day.turnarounds),
            "fairness": day.fairness(),
            "moves_per_worker": day.moves / workers,
            "slowest_look_ms": slowest,
        }
        cells = (
            f"{figures['busy']:.0%}",
            f"{figures['median_wait_minutes']:.0f}",
            f"{figures['longest_wait_minutes']:.0f}",
            f"{figures['turnaround_hours']:.1f}",
            f"{figures['done']} of {trainings}",
            f"{figures['fairness']:.2f}",
            f"{figures['moves_per_worker']:.0f}",
            f"{slowest:.0f}",
        )
        judged = Judgement("slowest look < 100 ms", slowest < 100)
        rows.append(Row(label=name, cells=cells, figures=figures, ratio=None, judgement=judged))
    if not options.quick:
        draw(days, PICTURE)
    return Section(
        name="placement",
        title=f"{hours:.0f} hours on a virtual clock, {workers} workers of {len(KINDS)} kinds that come and go, {trainings} trainings of five owners",
        columns=("busy", "median wait, min", "longest wait, min", "mean hours to the end", "done", "fairness", "moves a worker", "slowest look, ms"),
        ratio="",
        rows=tuple(rows),
        notes=(
            "busy: share of the speed that was there which worked for a training, while there was one. The rest fits none of those that may have more.",
            "wait: from submission to the first workers. fairness: Jain's index of the owners' shares, while several had a training that could use any machine and any number of them; 1 is equal.",
        ),
    )  # fmt: skip


def draw(days: Mapping[str, Day], path: Path) -> None:
    """How many trainings wait, and how the waits are spread, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (over_day, spread) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for (name, day), colour in zip(days.items(), ("#444444", "#d95f02", "#1b9e77"), strict=True):
        hours = [n * TICK / HOUR for n in range(len(day.waiting))]
        over_day.plot(hours, [r + w for r, w in zip(day.running, day.waiting, strict=True)], color=colour, label=name)
        over_day.plot(hours, day.waiting, color=colour, linestyle=":", linewidth=1)
        waits = sorted(w / 60 for w in day.waits)
        spread.step(
            [0.0, *waits], [n / len(waits) for n in range(len(waits) + 1)], where="post", color=colour, label=name
        )
    over_day.set(xlabel="hour of the day", ylabel="trainings that aren't done; dotted: without workers")
    spread.set(xlabel="minutes from submission to the first workers", ylabel="share of the trainings", ylim=(0, 1.02))
    for axes in (over_day, spread):
        axes.grid(visible=True, alpha=0.25)
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": ""})
    plt.close(figure)
