"""Quality against wall time on the digits: one machine alone, and three workers with either kind of contribution."""

import time
from dataclasses import dataclass

import torch
from rich.console import Console
from torch import Tensor

from bench.children import ROOT
from bench.curves import draw_curves
from bench.measure import warm_up
from bench.options import Options
from bench.report import Row, Section, at_most
from bench.school import School, school
from gan_core.coordinator.coordinator import Coordinator
from gan_core.data.images import ImageSet, open_images
from gan_core.networks.reference import train_plain
from gan_core.networks.update import State
from gan_core.plan import Plan
from gan_core.presets import preset
from gan_core.quality.digits import PERFECT, READABLE, DigitsEvaluator, Distance, distance_of

POINTS = 8  # snapshots over the time
WORKERS = ("ada", "grace", "alan")
ENDLESS = 10_000_000  # iterations: the clock ends these trainings
PICTURE = ROOT / "docs" / "images" / "quality.png"
ALONE, GRADIENT, LOCAL = "one machine", "3 workers, gradient", "3 workers, local_steps"


class TimeIsUp(Exception):
    """Ends a training from inside its watcher."""


@dataclass(frozen=True, slots=True)
class Shot:
    """The averaged generator at a moment; judged after the clock has stopped."""

    seconds: float
    images: int
    average: Tensor


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve."""

    seconds: float
    images: int
    found: Distance


class Film:
    """Takes a shot each time another part of the time has passed."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._began = seconds, time.perf_counter()
        self.shots: list[Shot] = []

    def look(self, state: State) -> bool:
        """Maybe take one; True when the time is up."""
        now = time.perf_counter() - self._began
        if now >= self._seconds * (len(self.shots) + 1) / POINTS:
            self.shots.append(Shot(now, state.images, state.average.clone()))
        return now >= self._seconds


def alone(plan: Plan, images: ImageSet, seconds: float) -> list[Shot]:
    """The ordinary loop with all of this machine's cores."""
    warm_up()
    film = Film(seconds)

    def watch(state: State, _: object) -> None:
        if film.look(state):
            raise TimeIsUp

    try:
        train_plain(plan, images, watch)
    except TimeIsUp:
        return film.shots
    raise AssertionError("an endless training ended")


def together(room: School, name: str, plan: Plan, seconds: float) -> list[Shot]:
    """Three shifts in processes of one thread each, led from here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the coordinator's few sums must not take the workers' cores
    try:
        with Coordinator(room.url, name, plan, room.cache) as training, room.workers(*WORKERS):
            film = Film(seconds)
            while not film.look(training.state):
                training.create_units()
                training.publish(training.gather())
            training.finish()
    finally:
        torch.set_num_threads(threads)
    return film.shots


def plans() -> dict[str, Plan]:
    """The demo's training three times. An averaged gradient is one batch from each worker: more would make fewer steps still."""
    demo = preset("demo").changed(iterations=ENDLESS)
    batch = demo.batch_size
    return {
        ALONE: demo,
        GRADIENT: demo.changed(contribution="gradient", images_per_unit=batch, quorum=batch * len(WORKERS)),
        LOCAL: demo.changed(contribution="local_steps"),
    }


def run(options: Options) -> Section:
    seconds = 4.0 if options.quick else options.seconds
    curves: dict[str, list[Point]] = {}
    console = Console(stderr=True)
    with school() as room:
        images = open_images("digits", image_size=32, channels=1, cache=room.cache)
        evaluator = DigitsEvaluator(images)
        for number, (label, plan) in enumerate(plans().items()):
            console.print(f"  {label}: {seconds:g} s", style="dim")
            name = f"quality-{number}"
            shots = alone(plan, images, seconds) if label == ALONE else together(room, name, plan, seconds)
            curves[label] = judged(plan, evaluator, shots[-2:] if options.quick else shots)
    pictures = () if options.quick else (PICTURE,)
    for picture in pictures:
        draw_curves(curves, picture)
    return Section(
        name="quality",
        title=f"Digit distance, demo preset, {seconds:g} s each on the same cores (lower is better)",
        columns=("seconds", "images", "images/s", "distance", "KID"),
        ratio="final distance",
        rows=tuple(_rows(curves)),
        notes=(
            f"{PERFECT} is perfect, about {READABLE} is well readable. All three share this machine: the workers bring no cores of their own.",
        ),
        pictures=pictures,
    )


def judged(plan: Plan, evaluator: DigitsEvaluator, shots: list[Shot]) -> list[Point]:
    return [Point(shot.seconds, shot.images, distance_of(plan, shot.average, evaluator)) for shot in shots]


def _rows(curves: dict[str, list[Point]]) -> list[Row]:
    last = {label: points[-1].found.frechet for label, points in curves.items()}
    rows = []
    for label, points in curves.items():
        for point in points:
            at_end = point is points[-1]
            rows.append(
                Row(
                    label=label,
                    cells=(
                        f"{point.seconds:.0f}",
                        f"{point.images:,}",
                        f"{point.images / point.seconds:,.0f}",
                        f"{point.found.frechet:.1f}",
                        f"{point.found.kid:.4f} ± {point.found.kid_error:.4f}",
                    ),
                    figures={
                        "seconds": point.seconds,
                        "images": point.images,
                        "distance": point.found.frechet,
                        "kid": point.found.kid,
                    },
                    ratio=last[label] / last[ALONE] if at_end else None,
                    judgement=at_most(last[LOCAL] / last[GRADIENT], 1, "× gradient")
                    if at_end and label == LOCAL
                    else None,
                )
            )
    return rows
