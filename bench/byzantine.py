"""Hostile students against each defence: eight workers in one process, with the product's own numerics and gates."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType

import torch
from rich.console import Console

from bench.measure import warm_up
from bench.options import Options
from bench.report import Row, Section, at_most
from gan_core.coordinator.gates import Gates, Sketcher
from gan_core.data.images import ImageSet, open_images
from gan_core.errors import PayloadError
from gan_core.layout import PARTS, Vectors
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.reference import train_plain
from gan_core.networks.update import State, advance, aggregate_all, initial_state, step_lengths
from gan_core.plan import AggregationName, Plan
from gan_core.policies.codecs import decode, encode
from gan_core.policies.sampling import cut_units
from gan_core.presets import preset
from gan_core.quality.digits import DigitsEvaluator, distance_of
from gan_core.units import WorkUnit

WORKERS = 8
HOSTILE = (3, 6)  # the places of the hostile ones: the first of them, or both
RUINED = 9_999.0  # distance of whatever is worse, or no picture at all
CLEAN = "clean"
DEFAULT = "mean + gates"
SEEDS = 5  # of the default, which is what is promised; the others have one

Others = Callable[[int], Vectors]  # what the worker of this place honestly computed
Attack = Callable[[int, Others, torch.Generator], Vectors]  # place → what it sends instead


def scaled(vectors: Vectors, factor: float) -> Vectors:
    return Vectors(vectors.generator * factor, vectors.discriminator * factor)


def noise(place: int, others: Others, random: torch.Generator) -> Vectors:
    """As long as a neighbour's, in a direction drawn by lot."""
    honest = others(place + 1)
    g, d = (torch.randn(vector.shape, generator=random) for vector in (honest.generator, honest.discriminator))
    g, d = g * (honest.generator.norm() / g.norm()), d * (honest.discriminator.norm() / d.norm())
    return Vectors(g, d)


ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        "sign flip": lambda place, others, random: scaled(others(place), -1),
        "sign flip, a tenth as long": lambda place, others, random: scaled(others(place), -0.1),
        "times 1,000": lambda place, others, random: scaled(others(place), 1_000),
        "times 5": lambda place, others, random: scaled(others(place), 5),
        "noise as long": noise,
        "NaN": lambda place, others, random: scaled(others(place + 1), torch.nan),
        "copy of another": lambda place, others, random: others(place + 1),
        "zero": lambda place, others, random: scaled(others(place + 1), 0),
    }
)

DEFENCES: Mapping[str, tuple[AggregationName, bool]] = MappingProxyType(
    {
        "mean": ("mean", False),
        "median": ("median", False),
        "trimmed_mean": ("trimmed_mean", False),
        "centered_clip": ("centered_clip", False),
        "multi_krum": ("multi_krum", False),
        DEFAULT: ("mean", True),
        "trimmed_mean + gates": ("trimmed_mean", True),
    }
)


@dataclass(frozen=True, slots=True)
class Task:
    """The runs of one defence against so many hostile workers, and a clean one first."""

    defence: str
    hostile: int  # 0: only clean ones, with this many other orders of the images
    orders: int = 0
    seed: int = 0  # of orders, noise and the attack's randomness


@dataclass(slots=True)
class Found:
    """What became of a task's runs."""

    distances: dict[str, float] = field(default_factory=dict)  # by attack, or CLEAN
    others: list[float] = field(default_factory=list)  # clean, with other orders of the images
    caught: int = 0
    hostile: int = 0  # contributions that were sent
    accused: int = 0
    honest: int = 0

    def seen(self, place: int, hostile: int, refused: bool) -> None:
        if place in HOSTILE[:hostile]:
            self.hostile, self.caught = self.hostile + 1, self.caught + refused
        else:
            self.honest, self.accused = self.honest + 1, self.accused + refused


def plan_for(quick: bool) -> Plan:
    """The demo's training with smaller networks and shorter walks."""
    return preset("demo").changed(
        generator_width=8,
        discriminator_width=8,
        latent_dim=32,
        images_per_unit=64 if quick else 256,
        quorum=WORKERS * (64 if quick else 256),
        iterations=2 if quick else 16,
    )


def begun(plan: Plan, images: ImageSet, quick: bool) -> State:
    """What one machine alone has trained so far: those eight go on with it."""
    alone = plan.changed(images_per_unit=640, quorum=640, iterations=2 if quick else 45)
    state = train_plain(alone, images)
    state.iteration = 0
    return state


class Class:
    """Eight workers around the same start. What is honestly computed twice from the same weights is remembered."""

    def __init__(self, plan: Plan, gated: bool, images: ImageSet, start: State) -> None:
        self._plan, self._gated, self._images, self._start = plan, gated, images, start
        self._networks, self._layout = Networks(plan), layout_of(plan)
        self._at_least = step_lengths(plan, start)  # of local steps, it is the same in each round
        self._submits = 0
        self._known: dict[tuple[bytes, int], Vectors] = {}

    def train(self, attack: Attack | None, hostile: int, found: Found, order: int = 0) -> State:
        """All iterations; ended before by weights that nobody can compute with."""
        plan, state, gates = self._plan.changed(seed=self._plan.seed + order), copied(self._plan, self._start), Gates()
        random = torch.Generator().manual_seed(1 + self._plan.seed)
        while state.iteration < plan.iterations:
            units, position = cut_units(plan, state.position, len(self._images), self._images.labels)
            honest: dict[int, Vectors] = {}
            weights = state.weights.generator.numpy().tobytes() + state.weights.discriminator.numpy().tobytes()

            def computed(
                place: int, units: list[WorkUnit] = units, weights: bytes = weights, honest: dict[int, Vectors] = honest
            ) -> Vectors:
                if place not in honest:
                    honest[place] = self._compute(units[place], weights, state.weights, keep=attack is None)
                return honest[place]

            try:
                sent = {
                    place: computed(place) for place in range(WORKERS) if place not in HOSTILE[:hostile] or not attack
                }
                if attack is not None:
                    sent |= {place: attack(place, computed, random) for place in HOSTILE[:hostile]}
                accepted = self._accepted(gates, sent, units, computed, hostile, found)
                aggregate = aggregate_all(plan, [(accepted[n], units[n].images) for n in range(WORKERS)])
            except PayloadError:  # the weights have become such that even honest answers can't be sent
                return state
            advance(plan, state, aggregate, position)
        return state

    def _accepted(
        self,
        gates: Gates,
        sent: dict[int, Vectors],
        units: list[WorkUnit],
        computed: Others,
        hostile: int,
        found: Found,
    ) -> dict[int, Vectors]:
        """What enters the sum, by place: as the coordinator does, an unusable answer's unit is computed by someone else."""
        sketcher, arrived, sketches, odd = Sketcher(self._layout), {}, [], set[int]()
        for place, vectors in sent.items():  # in the order of submits: a copy comes after what it copies
            self._submits += 1
            try:
                arrived[place] = self._carried(vectors, units[place])
                if self._gated:
                    sketches.append(sketcher.sketch(self._submits, str(place), units[place].images, arrived[place]))
            except PayloadError:
                odd.add(place)
        if self._gated:
            place_of = {sketch.contribution: int(sketch.student) for sketch in sketches}
            odd |= {place_of[number] for number in gates.refusals(self._plan, sketches, self._at_least)}
        for place in sent:
            found.seen(place, hostile, refused=place in odd)
        return arrived | {place: self._carried(computed(place), units[place]) for place in odd}

    def _carried(self, vectors: Vectors, unit: WorkUnit) -> Vectors:
        return decode(encode(vectors, self._layout, self._plan.codec, unit.seed), self._layout, self._plan.codec)

    def _compute(self, unit: WorkUnit, key: bytes, weights: Vectors, keep: bool) -> Vectors:
        known = self._known.get((key, unit.seed))
        if known is None:
            known, _ = contribute(self._plan, self._networks, self._images, [unit], weights)
            if keep:
                self._known[key, unit.seed] = known
        return known


def copied(plan: Plan, state: State) -> State:
    fresh = initial_state(plan)
    fresh.weights, fresh.average, fresh.position = state.weights.clone(), state.average.clone(), state.position
    return fresh


def judged(task: Task, quick: bool, start: Path, cache: Path) -> tuple[Task, Found]:
    """In a process of its own: the task's runs, and how good their pictures are."""
    torch.set_num_threads(1)
    warm_up()
    rule, gated = DEFENCES[task.defence]
    plan, found = plan_for(quick).changed(aggregation=rule, seed=task.seed), Found()
    images = open_images("digits", image_size=32, channels=1, cache=cache)
    evaluator = DigitsEvaluator(images)
    state = initial_state(plan)
    numbers = torch.from_file(str(start), size=start.stat().st_size // 4, dtype=torch.float32)
    restore(state, numbers)
    room = Class(plan, gated, images, state)

    def distance(attack: Attack | None, order: int = 0) -> float:
        average = room.train(attack, task.hostile if attack else 0, found, order).average
        if not bool(average.isfinite().all()):
            return RUINED
        value = distance_of(plan, average, evaluator, 500 if quick else 5_000).frechet
        return min(RUINED, value) if value == value else RUINED

    found.distances[CLEAN] = distance(None)
    found.others = [distance(None, order) for order in range(1, task.orders + 1)]
    if task.hostile:
        for name, attack in ATTACKS.items():
            found.distances[name] = distance(attack)
    return task, found


def stored(state: State, path: Path) -> None:
    """Weights and average as plain numbers."""
    vectors = [state.weights.part(part) for part in PARTS] + [state.average]
    path.write_bytes(torch.cat([torch.tensor([float(state.position)]), *vectors]).numpy().tobytes())


def restore(state: State, numbers: torch.Tensor) -> None:
    targets = [state.weights.part(part) for part in PARTS] + [state.average]
    state.position = int(numbers[0])
    for target, values in zip(targets, numbers[1:].split([t.numel() for t in targets]), strict=True):
        target.copy_(values)


def run(options: Options) -> Section:
    plan, console = plan_for(options.quick), Console(stderr=True)
    results: dict[Task, Found] = {}
    with tempfile.TemporaryDirectory(prefix="classgan-") as folder:
        start, cache = Path(folder) / "start", Path(folder) / "cache"
        images = open_images("digits", image_size=32, channels=1, cache=cache)
        state = begun(plan, images, options.quick)
        stored(state, start)
        before = distance_of(plan, state.average, DigitsEvaluator(images)).frechet
        console.print(f"  one machine alone, so far: {before:.1f}", style="dim")
        counts = (2,) if options.quick else (2, 1)
        tasks = [Task(name, hostile) for hostile in counts for name in DEFENCES]
        tasks += [
            Task(DEFAULT, hostile, seed=seed) for hostile in counts for seed in range(1, 2 if options.quick else SEEDS)
        ]
        tasks.append(Task("mean", 0, orders=1 if options.quick else 3))
        with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
            waiting = [pool.submit(judged, task, options.quick, start, cache) for task in tasks]
            for done in as_completed(waiting):
                task, found = done.result()
                results[task] = found
                console.print(
                    f"  {task.hostile} hostile, {task.defence}, seed {task.seed}: {found.distances}", style="dim"
                )
    return section(plan, before, results)


def section(plan: Plan, before: float, results: Mapping[Task, Found]) -> Section:
    clean = {task.defence: found.distances[CLEAN] for task, found in results.items() if not task.seed}
    rows = [row(CLEAN, clean, clean, [])]
    for hostile in sorted({task.hostile for task in results} - {0}):
        for attack in ATTACKS:
            runs = {task: found for task, found in results.items() if task.hostile == hostile}
            distances = {task.defence: found.distances[attack] for task, found in runs.items() if not task.seed}
            times = [f.distances[attack] / f.distances[CLEAN] for task, f in runs.items() if task.defence == DEFAULT]
            rows.append(row(f"{hostile} of {WORKERS}: {attack}", distances, clean, times))
    gated = [found for task, found in results.items() if DEFENCES[task.defence][1]]
    others = next(found.others for found in results.values() if found.others)
    return Section(
        name="byzantine",
        title=f"Digit distance with hostile workers among {WORKERS}, for each rule (lower is better)",
        columns=tuple(DEFENCES),
        ratio=f"{DEFAULT} / clean mean, {SEEDS} seeds:",
        rows=tuple(rows),
        notes=(
            f"Behind each distance: against the clean run of the same rule. {RUINED:,.0f}: no picture left, or worse than that.",
            f"{plan.iterations} iterations of {WORKERS} units of {plan.images_per_unit} images, from weights that one machine alone had "
            f"brought to {before:.1f}. Networks of width {plan.generator_width}.",
            f"Noise of the figure: clean `mean` with other orders of the images came to {', '.join(f'{d:.1f}' for d in others)}.",
            f"The gates refused {sum(f.caught for f in gated):,} of {sum(f.hostile for f in gated):,} hostile contributions "
            f"and {sum(f.accused for f in gated):,} of {sum(f.honest for f in gated):,} honest ones. A refused one's unit is computed by somebody "
            "else, so that the weights are those of the clean run. Nobody is suspended here; a class suspends after five.",
        ),
    )


def row(label: str, distances: Mapping[str, float], clean: Mapping[str, float], times: Sequence[float]) -> Row:
    """`times`: of the default, the distance against the clean run of the same seed."""
    spread = f"; ± {stdev(times):.2f}" if len(times) > 1 else ""
    mean = fmean(times) if times else 1.0
    return Row(
        label=label,
        cells=tuple(
            f"{distances[name]:,.1f} ({distances[name] / clean[name]:.2f} ×{spread if name == DEFAULT else ''})"
            for name in DEFENCES
        ),
        figures={**distances, "times": mean},
        ratio=mean,
        judgement=None if label == CLEAN else at_most(mean, 1.1),
    )
