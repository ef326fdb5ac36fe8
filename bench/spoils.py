"""One student who spoils one field of every contribution: what becomes of the pictures, of the credit, of the others.

In one process, with the product's own numerics, gates and checks. All of the student's first ten contributions are checked,
as a class does; two that are invalid, or five that are refused, end it.
"""

import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import torch
from rich.console import Console

from bench.byzantine import begun, copied, plan_for, restore, stored
from bench.measure import warm_up
from bench.options import Options
from bench.report import Row, Section, at_most
from gan_core.coordinator.gates import Gates, Sketcher
from gan_core.data.images import ImageSet, open_images
from gan_core.layout import PARTS, Layout, Vectors
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.recomputation import check
from gan_core.networks.update import State, advance, aggregate_all, initial_state, step_lengths
from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.quality.digits import DigitsEvaluator, distance_of
from gan_core.units import WorkUnit

CLASSES = (4, 12)
FACTORS = (2.0, 5.0, 30.0, 1_000.0)  # of a whole network's part
EXTREMES = (2.0, 1_000.0)  # of its smallest tensor
SEEDS = 5
STARTS = ("the first round", "a trained model")
INVALID, REFUSED = 2, 5  # so many end a student's part
BOUND = 1.1  # times the clean run's distance


@dataclass(frozen=True, slots=True)
class Case:
    """One class; what is spoilt, and how."""

    students: int
    start: str
    seed: int


@dataclass(slots=True)
class Outcome:
    """What became of one run."""

    distance: float = 0.0
    sent: int = 0  # by the spoiler
    refused: int = 0
    invalid: int = 0
    accused: int = 0  # honest contributions that were refused

    @property
    def credited(self) -> int:
        return self.sent - self.refused - self.invalid

    @property
    def is_out(self) -> bool:
        return self.invalid >= INVALID or self.refused >= REFUSED


class Class:
    """Students around the same start. What is computed twice from the same weights is remembered."""

    def __init__(self, plan: Plan, images: ImageSet, start: State) -> None:
        self._plan, self._images, self._start = plan, images, start
        self._networks, self._layout = Networks(plan), layout_of(plan)
        self._known: dict[tuple[bytes, int], Vectors] = {}

    def train(self, field: str, factor: float) -> tuple[State, Outcome]:
        """All iterations, the first student's field times this factor; "": everybody is honest."""
        plan, state, gates, found = self._plan, copied(self._plan, self._start), Gates(), Outcome()
        submits = 0
        while state.iteration < plan.iterations:
            units, position = cut_units(plan, state.position, len(self._images), self._images.labels)
            key = state.weights.generator.numpy().tobytes() + state.weights.discriminator.numpy().tobytes()
            honest = [self._computed(unit, key, state.weights) for unit in units]
            sent, sketcher = list(honest), Sketcher(self._layout)
            spoils = field != "" and not found.is_out
            if spoils:
                sent[0] = spoilt(honest[0], self._layout, field, factor)
            sketches = [
                sketcher.sketch(submits + n, str(n), units[n].images, vectors) for n, vectors in enumerate(sent)
            ]
            refused = {number - submits for number in gates.refusals(plan, sketches, step_lengths(plan, state))}
            submits += len(sent)
            found.accused += len(refused - ({0} if spoils else set()))
            if spoils:
                found.sent += 1
                found.refused += 0 in refused
                if 0 not in refused:
                    finding = check(plan, self._networks, self._images, units[:1], state.weights, sent[0])
                    found.invalid += not finding.valid
            entered = [honest[n] if n in refused else vectors for n, vectors in enumerate(sent)]
            advance(plan, state, aggregate_all(plan, zip(entered, (u.images for u in units), strict=True)), position)
        return state, found

    def _computed(self, unit: WorkUnit, key: bytes, weights: Vectors) -> Vectors:
        if (key, unit.seed) not in self._known:
            self._known[key, unit.seed], _ = contribute(self._plan, self._networks, self._images, [unit], weights)
        return self._known[key, unit.seed]


def fields_of(layout: Layout) -> list[tuple[str, float]]:
    """What is spoilt, and times what: each network's part, and its smallest tensor, of which the part's length says nothing."""
    smallest = [min(layout.part(part), key=lambda spec: spec.stop - spec.start).name for part in PARTS]
    return [*product(PARTS, FACTORS), *product(smallest, EXTREMES)]


def spoilt(vectors: Vectors, layout: Layout, field: str, factor: float) -> Vectors:
    """The contribution with one field made longer."""
    changed = vectors.clone()
    for part in PARTS:
        for spec in layout.part(part):
            if field in (part, spec.name):
                changed.part(part)[spec.start : spec.stop] *= factor
    return changed


def judged(case: Case, quick: bool, start: Path, cache: Path) -> dict[tuple[str, float], Outcome]:
    """In a process of its own: the clean run, and every field and factor."""
    torch.set_num_threads(1)
    warm_up()
    plan = plan_for(quick)
    plan = plan.changed(quorum=case.students * plan.images_per_unit, seed=plan.seed + case.seed)
    images = open_images("digits", image_size=32, channels=1, cache=cache)
    state = initial_state(plan)
    if case.start == STARTS[1]:
        restore(state, torch.from_file(str(start), size=start.stat().st_size // 4, dtype=torch.float32))
    room, evaluator = Class(plan, images, state), DigitsEvaluator(images)
    outcomes: dict[tuple[str, float], Outcome] = {}
    for attack in [("", 1.0), *fields_of(layout_of(plan))]:
        state, found = room.train(*attack)
        found.distance = distance_of(plan, state.average, evaluator, 500 if quick else 5_000).frechet
        outcomes[attack] = found
    return outcomes


def run(options: Options) -> Section:
    seeds, console = (1 if options.quick else SEEDS), Console(stderr=True)
    plan = plan_for(options.quick)
    cases = [Case(*case) for case in product(CLASSES, STARTS, range(seeds))]
    found: dict[Case, dict[tuple[str, float], Outcome]] = {}
    with tempfile.TemporaryDirectory(prefix="classgan-") as folder:
        start, cache = Path(folder) / "start", Path(folder) / "cache"
        stored(begun(plan, open_images("digits", image_size=32, channels=1, cache=cache), options.quick), start)
        with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
            waiting = {case: pool.submit(judged, case, options.quick, start, cache) for case in cases}
            for case, answer in waiting.items():
                found[case] = answer.result()
                console.print(f"  {case}: {found[case]['', 1.0].distance:.1f} clean", style="dim")
    return section(plan, seeds, found)


def section(plan: Plan, seeds: int, found: dict[Case, dict[tuple[str, float], Outcome]]) -> Section:
    rows = []
    for students, start, (field, factor) in product(CLASSES, STARTS, fields_of(layout_of(plan))):
        runs = [runs for case, runs in found.items() if (case.students, case.start) == (students, start)]
        outcomes = [run[field, factor] for run in runs]
        times = [run[field, factor].distance / run["", 1.0].distance for run in runs]
        sent, refused, invalid, credited, accused = (
            sum(getattr(outcome, name) for outcome in outcomes)
            for name in ("sent", "refused", "invalid", "credited", "accused")
        )
        mean = fmean(times)
        rows.append(
            Row(
                label=f"1 of {students}, from {start}: {field} × {factor:,g}",
                cells=(f"{refused} + {invalid} of {sent}", f"{credited}", f"{accused}", spread(times)),
                figures={"times": mean, "credited": credited, "accused": accused},
                ratio=mean,
                judgement=at_most(mean, BOUND) if credited == accused == 0 else at_most(float("inf"), BOUND),
            )
        )
    clean = {case: runs["", 1.0].distance for case, runs in found.items()}
    return Section(
        name="spoils",
        title=f"One student spoils one field of each contribution; distance against the clean run of the same seed, {seeds} seeds",
        columns=("refused + invalid", "credited", "honest refused", "± of seeds"),
        ratio="distance",
        rows=tuple(rows),
        notes=(
            f"{plan.iterations} iterations of a unit of {plan.images_per_unit} images for each student; networks of width "
            f"{plan.generator_width}. Clean: {min(clean.values()):.0f} to {max(clean.values()):.0f}.",
            "A contribution has no other field that enters the model. Met: at most 1.1 times the clean distance, no credit kept, no honest one refused.",
        ),
    )


def spread(values: list[float]) -> str:
    return f"{stdev(values):.2f}" if len(values) > 1 else ""
