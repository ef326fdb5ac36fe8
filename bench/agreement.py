"""Quality of the class against `train-local` with the same plans: the very same figure with one unit a lease, and no worse with more."""

from statistics import mean

import torch
from rich.console import Console
from torch import Tensor

from bench.options import Options
from bench.report import Row, Section, at_most
from bench.school import School, school
from gan_core.coordinator.coordinator import Coordinator
from gan_core.data.images import ImageSet, open_images
from gan_core.networks.reference import train_local
from gan_core.plan import Plan
from gan_core.presets import preset
from gan_core.quality.digits import DigitsEvaluator, Distance, distance_of

SEEDS = (0, 1, 2, 3, 4)
WORKERS = ("ada", "grace", "alan")
LOCAL, UNITS, CLASS = "train-local", "class of 3, a unit a lease", "class of 3"
EXACT, COARSE = "train-local, float32 both ways", "train-local, int4 both ways"
BASES = {UNITS: LOCAL, CLASS: LOCAL, COARSE: EXACT}  # what each must not be worse than


def of_class(room: School, name: str, plan: Plan, _: ImageSet) -> Tensor:
    """The averaged generator of three shifts in processes of one thread each."""
    with Coordinator(room.url, name, plan, room.cache) as training, room.workers(*WORKERS):
        while not training.is_done:
            training.create_units()
            training.publish(training.gather())
        training.finish()
    return training.state.average


def of_one(_: School, __: str, plan: Plan, images: ImageSet) -> Tensor:
    return train_local(plan, images).average


def run(options: Options) -> Section:
    seeds = SEEDS[:1] if options.quick else SEEDS
    demo = preset("demo").changed(iterations=2 if options.quick else 24)
    distances: dict[str, list[Distance]] = {}
    console, threads = Console(stderr=True), torch.get_num_threads()
    torch.set_num_threads(1)  # as in the workers' processes
    try:
        with school() as room:
            images = open_images("digits", image_size=32, channels=1, cache=room.cache)
            evaluator = DigitsEvaluator(images)
            for seed in seeds:
                plan = demo.changed(seed=seed)
                one = plan.changed(max_units_per_lease=1)
                exact, coarse = (plan.changed(codec=name, weights_codec=name) for name in ("float32", "int4"))
                for label, train, given in (
                    (LOCAL, of_one, plan),
                    (UNITS, of_class, one),
                    (CLASS, of_class, plan),
                    (EXACT, of_one, exact),
                    (COARSE, of_one, coarse),
                ):
                    console.print(f"  {label}, seed {seed}", style="dim")
                    average = train(room, f"agreement-{seed}-{given.max_units_per_lease}", given, images)
                    distances.setdefault(label, []).append(distance_of(plan, average, evaluator))
    finally:
        torch.set_num_threads(threads)
    return Section(
        name="agreement",
        title=f"Digit distance and KID, demo preset, {demo.iterations} iterations of {demo.quorum:,} images (lower is better)",
        columns=(*(f"seed {seed}" for seed in seeds), "mean"),
        ratio="mean distance",
        rows=_rows(distances),
        notes=(
            f"The class sends {demo.codec}; with float32 and leases of one unit its weights are the very same numbers (tests/runs/test_equality.py).",
            "The last row's ratio is to the row before it: 4 bits a number for contributions, and for what changes in the weights.",
            "A lease of several units is one contribution of more local steps; fewer and longer ones are averaged, which goes further with the same images. "
            "`train-local` takes unit by unit.",
        ),
    )


def _rows(measured: dict[str, list[Distance]]) -> tuple[Row, ...]:
    distances = {label: [found.frechet for found in several] for label, several in measured.items()}
    rows = []
    for label, values in distances.items():
        alone = distances[BASES.get(label, LOCAL)]
        noise = (max(alone) - min(alone)) / mean(alone)
        ratio = mean(values) / mean(alone)
        rows.append(
            Row(
                label=label,
                cells=(*map(str, measured[label]), f"{mean(values):.1f}"),
                figures={f"seed {seed}": value for seed, value in zip(SEEDS, values, strict=False)},
                ratio=ratio,
                judgement=at_most(ratio, 1 + noise, "× (the spread of seeds)") if label in BASES else None,
            )
        )
    return tuple(rows)
