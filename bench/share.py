"""How much of a class's speed reaches the model: machines of different speeds, equal ones, a very slow one, and ones that freeze."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from bench.options import Options
from bench.report import Row, Section, at_least
from bench.school import School, school
from bench.simulated import FROZEN, FROZEN_EVERY, JITTER, SimulatedMachine, Work
from gan_core.coordinator.coordinator import Coordinator
from gan_core.layout import Vectors
from gan_core.networks.models import layout_of
from gan_core.networks.update import initial_state
from gan_core.plan import Plan
from gan_core.policies.codecs import encode
from gan_core.presets import PRESETS
from gan_core.store.engine import connect

MIXED = (2, 8, 32, 120)
SLOWEST, SPAN = 20.0, 8.0  # images a second, and how many times faster the fastest machine is
ROUND = 6.0  # seconds
WARM = 3  # uncounted rounds at first, in which speeds become known
# The smallest plan that is still a GAN: the networks don't matter, their machines only wait.
PLAN = Plan(
    latent_dim=4, generator_width=4, discriminator_width=4, batch_size=2, images_per_unit=20, quorum="auto",
    target_seconds=ROUND, deadline_floor=10, deadline_ceiling=100, lease_seconds=30, codec="float32", iterations=10**7,
    checks="off", max_units_per_lease=100,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A class and what is measured of it."""

    label: str
    plan: Plan
    speeds: Sequence[float]  # of its machines, images a second
    target: float  # least share of its full speed
    freezes: bool = False

    @property
    def seconds(self) -> float:
        return FROZEN_EVERY if self.freezes else 10 * ROUND


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a class did in the measured rounds."""

    computed: float  # images, finished or not
    reached: int  # images that are in the model
    busy: float  # share of the machines' time
    seconds: float
    rounds: int

    @property
    def rate(self) -> float:
        return self.reached / self.seconds


def mixed(machines: int) -> list[float]:
    """Always the same ones, evenly spread over the span on a logarithmic scale, give or take a twentieth."""
    table = random.Random(0)
    return [SLOWEST * SPAN ** (n / (machines - 1)) * table.uniform(0.95, 1.05) for n in range(machines)]


def cases() -> list[Case]:
    found = [Case(f"{machines} mixed machines", PLAN, mixed(machines), 0.93) for machines in MIXED]
    for name, chosen in PRESETS.items():  # its own quorum and batches, in rounds of as many seconds
        its = {field: getattr(chosen, field) for field in ("quorum", "images_per_unit", "batch_size")}
        workers = chosen.useful_workers() or 4
        speed = chosen.images_per_unit / ROUND
        plan = PLAN.changed(**its, max_units_per_lease=chosen.max_units_per_lease)
        found.append(Case(f"{workers} equal machines, quorum of {name}", plan, [speed] * workers, 0.93))
    found.append(
        Case("7 equal machines, one 100 times slower", PLAN, [*[SLOWEST * SPAN] * 7, SLOWEST * SPAN / 100], 0.85)
    )
    found.append(Case(f"32 mixed machines, each frozen {FROZEN:g} s in {FROZEN_EVERY:g}", PLAN, mixed(32), 0.85, True))
    return found


def measure(room: School, name: str, case: Case, seconds: float) -> Outcome:
    """Let a class train for so long."""
    with connect(room.url) as connection:  # the class before has left long ago: an automatic quorum must not count it
        connection.execute("UPDATE classgan.workers SET last_seen = now() - interval '1 hour'")
    stop, payload, machines = threading.Event(), payload_for(case.plan), len(case.speeds)
    urls = [room.student_url(f"student-{n}") for n in range(machines)]
    hands = [
        SimulatedMachine(url, f"{name}-{n}", case.plan, speed, freezes=case.freezes, payload=payload, stop=stop)
        for n, (url, speed) in enumerate(zip(urls, case.speeds, strict=True))
    ]
    with Coordinator(room.url, name, case.plan, room.cache) as training, ThreadPoolExecutor(machines) as pool:

        def look(_: object) -> None:
            if not stop.is_set():  # the class would wait for this machine for ever
                training.stop_asked = "a machine that broke"

        runs = [pool.submit(hand.run) for hand in hands]
        for run in runs:
            run.add_done_callback(look)
        try:
            for _ in range(WARM):
                turn(training)
            began, rounds = time.monotonic(), 0
            while time.monotonic() < began + seconds:
                turn(training)
                rounds += 1
            ended = time.monotonic()
        finally:
            stop.set()
            for run in runs:
                run.result()
        training.finish()
    work = [work for hand in hands for work in hand.work]
    return Outcome(
        computed=sum(w.images for w in work if w.iteration >= WARM),
        reached=reached(room, name),
        busy=busy(work, machines, began, ended),
        seconds=ended - began,
        rounds=rounds,
    )


def busy(work: list[Work], machines: int, began: float, ended: float) -> float:
    """Share of so many machines' time between two moments."""
    return sum(max(0.0, min(w.ended, ended) - max(w.began, began)) for w in work) / machines / (ended - began)


def turn(training: Coordinator) -> None:
    training.create_units()
    training.publish(training.gather())


def payload_for(plan: Plan) -> bytes:
    """A contribution that changes nothing."""
    weights = initial_state(plan).weights
    still = Vectors(torch.zeros_like(weights.generator), torch.zeros_like(weights.discriminator))
    return encode(still, layout_of(plan), plan.codec)


def reached(room: School, name: str) -> int:
    """Images that entered the model in the measured rounds."""
    with connect(room.url) as connection:
        row = connection.execute(
            "SELECT sum(i.images)::bigint FROM classgan.iterations AS i JOIN classgan.trainings AS t ON t.id = i.training_id"
            " WHERE t.name = %s AND i.number >= %s",
            (name, WARM),
        ).fetchone()
    assert row is not None
    return row[0]


def run(options: Options) -> Section:
    rows = []
    with school() as room:
        for number, case in enumerate(cases()):
            seconds = 2 * ROUND if options.quick else case.seconds
            rows.append(_row(case, measure(room, f"share-{number}", case, seconds), judged=not options.quick))
    return Section(
        name="share",
        title=f"images in the model beside the full speed of the class, rounds of {ROUND:g} s",
        columns=("images computed", "in the model", "busy", "s a round", "images/s"),
        ratio="share",
        rows=tuple(rows),
        notes=(
            f"Mixed: the fastest machine is {SPAN:g} times as fast as the slowest. A unit takes ±{JITTER:.0%}. They wait instead of computing.",
            "The share's baseline is all machines at full speed, without a pause.",
            "Presets keep their own quorum, units and batches; their machines compute a unit a round.",
        ),
    )


def _row(case: Case, outcome: Outcome, *, judged: bool) -> Row:
    share = outcome.rate / sum(case.speeds)
    return Row(
        label=case.label,
        cells=(
            f"{outcome.computed:,.0f}",
            f"{outcome.reached / outcome.computed:.1%}",
            f"{outcome.busy:.1%}",
            f"{outcome.seconds / outcome.rounds:.2f}",
            f"{outcome.rate:,.0f}",
        ),
        figures={
            "computed": outcome.computed,
            "reached": outcome.reached,
            "busy": outcome.busy,
            "images_per_second": outcome.rate,
            "rounds": outcome.rounds,
        },
        ratio=share,
        judgement=at_least(share, case.target) if judged else None,
    )
