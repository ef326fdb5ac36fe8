"""What more machines bring: digit distance at equal wall time, for fleets of equal and of different machines, against one tuned machine.

Time is simulated: a machine computes as many images as its speed allows and transfers take none, but every walk is the product's
own. One fleet with one seed is one process of one thread. What it found is kept in a file, so that a run that was interrupted
goes on: all of them take hours.
"""

import hashlib
import json
import math
import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType

import torch
from rich.console import Console

from bench.children import ROOT
from bench.curves import draw_scaling
from bench.measure import warm_up
from bench.options import Options
from bench.report import Row, Section, at_most
from gan_core.data.images import ImageSet, next_units, open_images
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks
from gan_core.networks.reference import train_plain
from gan_core.networks.update import State, advance, aggregate_all, initial_state
from gan_core.plan import Plan
from gan_core.presets import preset
from gan_core.quality.digits import DigitsEvaluator, distance_of

ALONE = "one machine"
SEEDS = 5
TIMES = (
    5_000,
    10_000,
    14_000,
    20_000,
    28_000,
    40_000,
    57_000,
    80_000,
    113_000,
    160_000,
)  # images of the fastest machine
COMPARED = (5_000, 10_000, 20_000, 40_000, 57_000)  # no fleet may be worse than the tuned machine there
SHORT, LONG = 57_000, 160_000  # until when a fleet is measured: 32 machines compute so long for an hour
BATCHES, RATES = (16, 32, 64), (1e-3, 2e-3, 3e-3)  # among which the machine alone is tuned,
TUNED_AT, TUNED_WITH = 40_000, 2  # after so many images, with so many seeds
GOALS = MappingProxyType(
    {"8 equal": 0.35, "16 equal": 0.25}
)  # most of the tuned machine's time to its own last distance
T_95 = MappingProxyType({2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78})  # Student's t, two-sided, by the number of seeds
KEPT, PICTURE = ROOT / ".bench" / "scaling.jsonl", ROOT / "docs" / "images" / "scaling.png"

Curve = Mapping[int, float]  # images of the fastest machine → distance


@dataclass(frozen=True, slots=True)
class Task:
    """One fleet, or the machine alone, with one seed."""

    speeds: tuple[float, ...]  # the fastest has 1; a single one trains with the plain loop
    until: int  # images of the fastest machine
    batch: int
    rate: float
    seed: int

    @property
    def plan(self) -> Plan:
        rates = {f"learning_rate_{network}": self.rate for network in "gd"}
        return preset("demo").changed(batch_size=self.batch, seed=self.seed, codec="float32", **rates)


def fleets() -> dict[str, tuple[tuple[float, ...], int]]:
    """The speeds of each, and until when it is measured."""
    equal = {f"{n} equal": ((1.0,) * n, LONG if n < 4 else SHORT) for n in (2, 4, 8, 16, 32)}
    mixed = {f"8 mixed, 1:{span}": (tuple(span ** (-n / 7) for n in range(8)), SHORT) for span in (8, 100)}
    return {**equal, **mixed, "a GPU and 30 laptops": ((1.0, *[1 / 20] * 30), SHORT)}


def trained(task: Task, images: ImageSet) -> Iterator[State]:
    """A fleet's training, round by round: in each one every machine walks for as long as the fastest needs for a unit."""
    plan = task.plan
    state, networks, saved = initial_state(plan), Networks(plan), [0.0] * len(task.speeds)
    while True:
        contributions, position = [], state.position
        for machine, speed in enumerate(task.speeds):
            saved[machine] += speed * plan.images_per_unit
            steps = int(saved[machine] // plan.batch_size)
            saved[machine] = (
                saved[machine] % plan.batch_size if steps else 0.0
            )  # a step that isn't done in time is lost
            if steps:
                its = plan.changed(images_per_unit=steps * plan.batch_size, quorum=steps * plan.batch_size)
                units, position = next_units(its, position, images)
                vectors, measures = contribute(plan, networks, images, units, state.weights)
                contributions.append((vectors, measures.images))
        advance(plan, state, aggregate_all(plan, contributions), position)
        yield state


def curve_of(task: Task, cache: Path, samples: int) -> dict[int, float]:
    """In a process of its own: the averaged generator's distance at each time."""
    torch.set_num_threads(1)
    warm_up()
    images = open_images("digits", image_size=32, channels=1, cache=cache)
    evaluator, curve, times = DigitsEvaluator(images), dict[int, float](), [t for t in TIMES if t <= task.until]

    def look(state: State) -> None:
        while times and state.iteration * task.plan.images_per_unit >= times[0]:
            curve[times.pop(0)] = distance_of(task.plan, state.average, evaluator, samples).frechet

    if len(task.speeds) == 1:
        each = task.plan.images_per_unit
        alone = task.plan.changed(quorum=each, iterations=math.ceil(task.until / each))
        train_plain(alone, images, lambda state, _: look(state))
    for state in trained(task, images) if times else ():
        look(state)
        if not times:
            break
    return curve


class Lab:
    """Computes curves, as many at a time as there are cores; what is kept of this very code isn't computed again."""

    def __init__(self, console: Console, path: Path, quick: bool) -> None:
        self._console, self._path, self._quick = console, path, quick
        self._seeds = range(1 if quick else SEEDS)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._known = {
            key: {int(time): value for time, value in curve.items()} for key, curve in map(json.loads, lines)
        }

    def tuned(self) -> tuple[int, float]:
        """Batch and rate with which one machine alone comes furthest."""
        seeds = self._seeds[:TUNED_WITH]
        tried = {w: [Task((1.0,), self._until(TUNED_AT), *w, seed) for seed in seeds] for w in product(BATCHES, RATES)}
        found = self._computed([task for tasks in tried.values() for task in tasks])
        return min(tried, key=lambda which: fmean(math.log(last(found[task])) for task in tried[which]))

    def curves(self, label: str, speeds: tuple[float, ...], until: int, batch: int, rate: float) -> list[Curve]:
        """A fleet's, one for each seed."""
        self._console.print(f"  {label}", style="dim")
        tasks = [Task(speeds, self._until(until), batch, rate, seed) for seed in self._seeds]
        found = self._computed(tasks)
        return [found[task] for task in tasks]

    def _until(self, time: int) -> int:
        return TIMES[0] if self._quick else time

    def _computed(self, tasks: Sequence[Task]) -> dict[Task, Curve]:
        keys = {task: key_of(task) for task in tasks}
        missing = [task for task in tasks if keys[task] not in self._known]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix="classgan-") as folder,
            ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool,
        ):
            if missing:
                open_images("digits", image_size=32, channels=1, cache=Path(folder))  # once, before all want it
            waiting = {pool.submit(curve_of, t, Path(folder), 500 if self._quick else 5_000): t for t in missing}
            for done in as_completed(waiting):
                task = waiting[done]
                curve = self._known[keys[task]] = done.result()
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([keys[task], curve]) + "\n")
                ends = ", ".join(f"{distance:.1f}" for distance in curve.values())
                said = f"    seed {task.seed}, batch {task.batch}, rate {task.rate:g}: {ends}"
                self._console.print(said, style="dim", highlight=False)
        return {task: self._known[keys[task]] for task in tasks}


def key_of(task: Task) -> str:
    """A digest of all that the outcome follows from."""
    room = ROOT / "gan_core"
    sources = [
        Path(__file__),
        room / "presets.py",
        room / "plan.py",
        *(room / "networks").glob("*.py"),
        *(room / "policies").glob("*.py"),
    ]
    code = b"".join(path.read_bytes() for path in sorted(sources))
    return hashlib.blake2b(repr(task).encode() + code, digest_size=8).hexdigest()


def last(curve: Curve) -> float:
    return curve[max(curve)]


def mean_of(curves: Sequence[Curve]) -> dict[int, tuple[float, float]]:
    """At each time the geometric mean, and the factor of its 95 % interval: seeds differ by a factor, not by a sum."""
    found = {}
    for time in curves[0]:
        logs = [math.log(curve[time]) for curve in curves]
        error = T_95[len(logs)] * stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
        found[time] = math.exp(fmean(logs)), math.exp(error)
    return found


def time_to(curve: Curve, distance: float) -> float:
    """When a curve is first at this distance: between two times on a straight line of logarithms; infinite if never."""
    before: tuple[int, float] | None = None
    for time, value in curve.items():
        if value <= distance:
            if before is None:
                return time
            share = math.log(before[1] / distance) / math.log(before[1] / value)
            return before[0] * (time / before[0]) ** share
        before = time, value
    return math.inf


def run(options: Options) -> Section:
    console, demo = Console(stderr=True), preset("demo")
    with tempfile.TemporaryDirectory(prefix="classgan-") as folder:
        lab = Lab(console, Path(folder) / "quick.jsonl" if options.quick else KEPT, options.quick)
        batch, rate = lab.tuned()
        found = {ALONE: lab.curves(ALONE, (1.0,), LONG, batch, rate)}
        chosen = fleets()
        for label in ("2 equal", "8 mixed, 1:100") if options.quick else chosen:
            speeds, until = chosen[label]
            found[label] = lab.curves(label, speeds, until, demo.batch_size, demo.learning_rate_g)
    means = {label: mean_of(curves) for label, curves in found.items()}
    if not options.quick:
        draw_scaling(means, PICTURE)
    return Section(
        name="scaling",
        title="digit distance at equal wall time, networks of demo (lower is better)",
        columns=tuple(f"after {time:,}" for time in COMPARED),
        ratio="time to one machine's last distance",
        rows=tuple(_row(label, curves, means[ALONE], judged=not options.quick) for label, curves in means.items()),
        notes=(
            f"Time is counted in images that the fastest machine computes. Geometric means of {SEEDS} seeds, × or ÷ the factor of their 95 % interval.",
            f"{ALONE}: the plain loop with batch {batch} and rate {rate:g}, the best of {len(BATCHES) * len(RATES)} pairs at {TUNED_AT:,} images.",
            f"Fleets: the preset's batch {demo.batch_size} and rate {demo.learning_rate_g:g}, in rounds of {demo.images_per_unit} images of the fastest machine.",
        ),
        pictures=() if options.quick else (PICTURE,),
    )


def _row(
    label: str, means: Mapping[int, tuple[float, float]], alone: Mapping[int, tuple[float, float]], *, judged: bool
) -> Row:
    curve = {time: mean for time, (mean, _) in means.items()}
    goal = alone[max(alone)][0]
    ratio = time_to(curve, goal) / max(alone)
    worst = max(curve[time] / alone[time][0] for time in COMPARED if time in curve)
    judgement = at_most(ratio, GOALS[label]) if label in GOALS else at_most(worst, 1, "× its distance at any time")
    return Row(
        label=label,
        cells=tuple("{:.1f} ×÷ {:.2f}".format(*means[time]) if time in means else "" for time in COMPARED),
        figures={f"distance at {time}": mean for time, mean in curve.items()} | {"worst": worst},
        ratio=ratio if math.isfinite(ratio) else None,
        judgement=judgement if judged and label != ALONE else None,
    )
