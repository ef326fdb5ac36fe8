"""Whether checks tell honest work from lazy work: really computed results, then simulated choices of what is checked.

Each result in the pool is computed by the product's own code and judged by the checker's own rule against a recomputation on
one thread. Which results of a student are checked is then simulated many times: chance and streak as in the database.
"""

import random
import statistics
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from bench.measure import warm_up
from bench.options import Options
from bench.report import Row, Section, at_least, at_most
from bench.school import workplace
from gan_core.data.images import ImageSet, open_images
from gan_core.layout import PARTS, Part, Vectors
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.recomputation import recompute, sent, unrounded
from gan_core.networks.reference import train_local
from gan_core.networks.update import initial_state
from gan_core.plan import Plan
from gan_core.policies.codecs import CODECS
from gan_core.policies.sampling import cut_units
from gan_core.policies.trails import Answer, Trail, compare
from gan_core.policies.validation import Likeness, Track, alike, check_probability, edges, judge
from gan_core.presets import preset
from gan_core.units import WorkUnit

HONEST_RUNS, HONEST_RESULTS, FIRST = 1_000, 100, 20  # the extra work counts after the first 20 results
CHEAT_RUNS, WITHIN = 100, 30  # results until a cheat must be found
SMALL = {"data": "digits", "image_size": 32, "channels": 1, "mirror": False, "latent_dim": 64}
SMALL |= {"generator_width": 16, "discriminator_width": 16}
FINELY = ("honest: 2 threads", "honest: bfloat16")  # what is judged with the codecs that round little, too


@dataclass(frozen=True, slots=True)
class Setting:
    """A moment of a training, and a lease."""

    plan: Plan
    before: Vectors  # last iteration's weights
    weights: Vectors
    units: Sequence[WorkUnit]  # the lease's one, another student's, last iteration's
    name: str


@dataclass(slots=True)
class Kind:
    """All results of one sort."""

    likenesses: list[dict[Part, Likeness]] = field(default_factory=list)
    verdicts: list[tuple[bool, bool]] = field(default_factory=list)  # valid, and whether a twin was needed to tell
    agreed: list[bool] = field(default_factory=list)  # with each of three honest machines

    def figures(self) -> dict[str, float]:
        """Of the weaker network each time: it is what a result is judged by."""
        walks = [one for one in self.likenesses if len(one["generator"].shares) > 1]
        ranges = {
            "cosine_gradient": [min(one[p].cosine for p in PARTS) for one in self.likenesses if one not in walks],
            "cosine_steps": [min(one[p].cosine for p in PARTS) for one in walks],
            "opening": [min(one[p].shares[0] for p in PARTS) for one in walks],
            "weakest": [min(min(one[p].shares) for p in PARTS) for one in walks],
        }
        lowest = {f"{name}_min": min(values, default=0.0) for name, values in ranges.items()}
        highest = {f"{name}_max": max(values, default=0.0) for name, values in ranges.items()}
        invalid = sum(not valid for valid, _ in self.verdicts)
        compared = {"compared": len(self.agreed), "agreed": sum(self.agreed)}
        return {"results": len(self.verdicts), "invalid": invalid, **compared, **lowest, **highest}


def settings_of(images: ImageSet, quick: bool) -> Iterator[Setting]:
    """Small leases and large, early and late, both kinds of contribution, two presets."""
    bases = {"demo": preset("demo"), "dcgan-small": preset("dcgan").changed(**SMALL)}
    for name, base in bases.items():
        for iterations in (0, 20):
            weights = initial_state(base).weights
            if iterations and not quick:
                weights = train_local(
                    base.changed(contribution="local_steps", iterations=iterations, quorum=1_875), images
                ).weights
            for kind, batches, leases in (
                ("local_steps", 5, 3),
                ("local_steps", 20, 2),
                ("local_steps", 100, 1),
                ("gradient", 5, 3),
                ("gradient", 20, 2),
            ):
                if quick and (batches > 5 or iterations):
                    continue
                size = min(batches * base.batch_size, 1_600)
                plan = base.changed(contribution=kind, images_per_unit=size, quorum=4_800)
                for lease in range(1 if quick else leases):
                    units, _ = cut_units(plan.changed(seed=lease), 0, len(images), None, 3 * size)
                    # One iteration further on, by the change of last iteration's unit.
                    moving = plan.changed(contribution="local_steps")
                    change, _ = recompute(moving, Networks(moving), images, [units[2]], weights)
                    now = Vectors(
                        weights.generator + change.generator,
                        weights.discriminator + change.discriminator,
                    )
                    yield Setting(plan, weights, now, units, f"{name}, it. {iterations}, {kind}, {size} images")


@contextmanager
def threads(count: int) -> Generator[None]:
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def trail_of(setting: Setting, track: Track) -> bytes:
    plan, unit = setting.plan, setting.units[0]
    trail, batches = Trail(layout_of(plan), [unit]), plan.batches_of(unit.images)
    ends = edges(batches) if plan.contribution == "local_steps" else (batches,)
    for done, point in zip((0, *ends), track.points, strict=True):
        trail.add(done, point)
    return trail.encode()


def results_of(setting: Setting, images: ImageSet) -> tuple[dict[str, Vectors], dict[str, bytes]]:
    """Honest results of other devices and codecs, and cheats, named as in the table; and the trails of four devices."""
    plan, (unit, other, last) = setting.plan, setting.units
    layout, networks = layout_of(plan), Networks(plan)

    def compute(unit: WorkUnit = unit, weights: Vectors = setting.weights, blurred: bool = False) -> Vectors:
        return recompute(plan, networks, images, [unit], weights, blurred)[0]

    def part_of(share: float, blurred: bool) -> Vectors:
        batches = max(1, round(share * unit.images / plan.batch_size))
        return compute(replace(unit, indices=unit.indices[: batches * plan.batch_size]), blurred=blurred)

    def as_long(vectors: Vectors) -> Vectors:
        factors = {p: float(honest.part(p).norm() / vectors.part(p).norm().clamp_min(1e-30)) for p in PARTS}
        return Vectors(
            factors["generator"] * vectors.generator,
            factors["discriminator"] * vectors.discriminator,
        )

    def lazy(blurred: bool) -> dict[str, Vectors]:
        """The cheats of those who do compute something."""
        tenth, half = part_of(0.1, blurred), part_of(0.5, blurred)
        return {
            "last iteration's contribution": compute(last, setting.before, blurred),
            "another student's payload": compute(other, blurred=blurred),
            "10 % of the batches": tenth,
            "10 % of the batches, made as long": as_long(tenth),
            "half of the batches": half,
            "half of the batches, made as long": as_long(half),
            "weights of last iteration": compute(weights=setting.before, blurred=blurred),
        }

    def walk(blurred: bool = False) -> tuple[Vectors, bytes]:
        vectors, track = recompute(plan, networks, images, [unit], setting.weights, blurred)
        return vectors, trail_of(setting, track)

    trails: dict[str, bytes] = {}
    with threads(2):
        (honest, trails["2 threads"]), (blurred, trails["bfloat16"]) = walk(), walk(blurred=True)
    with torch.backends.mkldnn.flags(enabled=False):
        foreign, trails["another library"] = walk()
        foreign_blurred, trails["bfloat16, another library"] = walk(blurred=True)
    noise = torch.Generator().manual_seed(unit.seed)
    stretched = honest.clone()
    spec = layout.generator[unit.seed % len(layout.generator)]
    stretched.generator[spec.start : spec.stop] *= 2
    results = {
        "honest: 2 threads": honest,
        "honest: another library": foreign,
        "honest: bfloat16": blurred,
        "honest: bfloat16, another library": foreign_blurred,
        "cheat: noise of the right length": as_long(
            Vectors(
                torch.randn(layout.length("generator"), generator=noise),
                torch.randn(layout.length("discriminator"), generator=noise),
            )
        ),
        "cheat: D honest, G noise": Vectors(
            honest.generator[torch.randperm(len(honest.generator), generator=noise)],
            honest.discriminator,
        ),
        "cheat: one tensor of G twice as long": stretched,
        **{f"cheat: {name}": vectors for name, vectors in lazy(blurred=False).items()},
        **{f"cheat: {name}, bfloat16": vectors for name, vectors in lazy(blurred=True).items()},
    }
    return results, trails


def pool_of(images: ImageSet, quick: bool) -> dict[str, Kind]:
    """Every sort of result, computed and judged."""
    pool: dict[str, Kind] = {}
    for setting in settings_of(images, quick):
        plan, unit = setting.plan, setting.units[0]
        ours, track = recompute(plan, Networks(plan), images, [unit], setting.weights)
        blurred, _ = recompute(plan, Networks(plan), images, [unit], setting.weights, blurred=True)
        layout = layout_of(plan)
        results, trails = results_of(setting, images)
        # A cheat is given the best trail there is: what it sends must still hold what the others walked.
        others = {
            "1 thread": (results["honest: 2 threads"], trail_of(setting, track)),  # its trail is what counts
            "another library": (results["honest: another library"], trails["another library"]),
            "bfloat16": (results["honest: bfloat16"], trails["bfloat16"]),
        }
        for codec in CODECS:
            its = plan.changed(codec=codec)
            twin = alike(unrounded(its, [unit], sent(its, [unit], blurred), ours), track, layout)
            honest = [Answer(sent(its, [unit], vectors), trail) for vectors, trail in others.values()]
            for name, vectors in results.items():
                if codec in ("float16", "int8") and name not in FINELY:
                    continue  # between the two others, in every way
                kind = pool.setdefault(name if codec == "float32" else f"{name}, {codec}", Kind())
                claimed = sent(its, [unit], vectors)
                likeness = alike(unrounded(its, [unit], claimed, ours), track, layout)
                device = next((known for known in sorted(trails, key=len, reverse=True) if known in name), "2 threads")
                answer = Answer(claimed, trails[device])
                kind.agreed += [compare(plan, layout, [unit], (answer, other)).agree for other in honest]
                at_once = judge(likeness).valid
                kind.likenesses.append(likeness)
                kind.verdicts.append((at_once or judge(likeness, twin).valid, not at_once))
    return pool


def found_after(draw: Callable[[int], tuple[bool, bool]], results: int, chance: random.Random) -> tuple[int, float]:
    """(results until the first one that a check finds invalid, or 0; recomputations after the first 20)."""
    streak, extra = 0, 0
    for number in range(results):
        if chance.random() >= check_probability(streak):
            continue
        valid, needed_twin = draw(number)
        extra += (1 + needed_twin) if number >= FIRST else 0
        if not valid:
            return number + 1, extra
        streak += 1
    return 0, extra


def run(options: Options) -> Section:
    torch.set_num_threads(1)
    warm_up()
    chance = random.Random(0)
    with workplace() as folder, warnings.catch_warnings(action="ignore"):
        images = open_images("digits", image_size=32, channels=1, cache=folder)
        pool = pool_of(images, options.quick)
    every = [verdict for name, kind in pool.items() if name.startswith("honest") for verdict in kind.verdicts]
    rows = []
    for name, kind in pool.items():
        figures, is_cheat = kind.figures(), name.startswith("cheat")
        if is_cheat:
            after = [
                found_after(lambda _, k=kind: chance.choice(k.verdicts), WITHIN, chance)[0] for _ in range(CHEAT_RUNS)
            ]
            asleep = [
                found_after(
                    lambda n, k=kind: chance.choice(k.verdicts if n >= FIRST else every), FIRST + WITHIN, chance
                )[0]
                for _ in range(CHEAT_RUNS)
            ]
            found, slept = sum(map(bool, after)), sum(map(bool, asleep))
            figures |= {"found": found, "found_asleep": slept}
            outcome = f"found in {found} of {CHEAT_RUNS} (honest for {FIRST} first: {slept})"
            judgement = at_least(100 * found / CHEAT_RUNS, 95, "% found")
        else:
            runs = [
                found_after(lambda _, k=kind: chance.choice(k.verdicts), HONEST_RESULTS, chance)
                for _ in range(HONEST_RUNS)
            ]
            accused = sum(bool(found) for found, _ in runs)
            extra = statistics.mean(e for _, e in runs) / (HONEST_RESULTS - FIRST)
            figures |= {"accused": accused, "extra": extra}
            outcome = f"accused in {accused} of {HONEST_RUNS:,}; recomputed {extra:.1%}"
            judgement = at_most(accused, 0, "accused")
        rows.append(
            Row(
                label=name,
                cells=(
                    f"{figures['cosine_gradient_min']:.3f} to {figures['cosine_gradient_max']:.3f}",
                    f"{figures['cosine_steps_min']:.2f} to {figures['cosine_steps_max']:.2f}",
                    f"{figures['opening_min']:.2f} to {figures['opening_max']:.2f}",
                    f"{figures['weakest_min']:.2f} to {figures['weakest_max']:.2f}",
                    f"{figures['invalid']:.0f} of {figures['results']:.0f}",
                    f"{figures['agreed']:.0f} of {figures['compared']:.0f}",
                    outcome,
                ),
                figures=figures,
                judgement=None if options.quick else judgement,
            )
        )
    mixed = [found_after(lambda _: chance.choice(every), HONEST_RESULTS, chance) for _ in range(HONEST_RUNS)]
    extra = statistics.mean(e for _, e in mixed) / (HONEST_RESULTS - FIRST)
    rows.append(
        Row(
            label="all honest ones together",
            cells=(
                *[""] * 6,
                f"accused in {sum(bool(f) for f, _ in mixed)} of {HONEST_RUNS:,}; recomputed {extra:.1%}",
            ),
            figures={"extra": extra, "accused": sum(bool(f) for f, _ in mixed)},
            judgement=None if options.quick else at_most(100 * extra, 10, "% recomputed"),
        )
    )
    return Section(
        name="credit",
        title="Honest and lazy results beside their recomputation, and whether checks find out",
        columns=(
            "gradient: cosine",
            "steps: cosine",
            "share of the opening",
            "weakest share",
            "judged invalid",
            "agrees with another",
            "simulated",
        ),
        ratio="",
        rows=tuple(rows),
        notes=(
            "Results are really computed: presets demo and dcgan at width 16, before any training and after 20 iterations, 5, 20 and "
            "50 to 100 local steps and gradients of 5 and 20 batches. Which results are checked is simulated.",
            "Agrees with another: compared by trails with an honest machine of one thread, of another library, and one that rounds to bfloat16. "
            "Honest results that don't agree are recomputed like any. Cheats come with an honest machine's trail. *bfloat16*: computed by a device that rounds to it.",
            f"Recomputed: by the instructor's machine, in results {FIRST + 1} to {HONEST_RESULTS} of a student, second looks included. "
            f"Found: within {WITHIN} results from the first, or after {FIRST} honest ones.",
        ),
    )
