"""How much of what a class computes reaches the model, and how much of its time it computes: 2, 8 and 32 mixed machines."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import torch

from bench.measure import median
from bench.options import Options
from bench.report import Row, Section, at_least
from bench.school import School, school
from bench.simulated import JITTER, STALL, STALL_EVERY, SimulatedMachine, Work
from gan_core.coordinator.coordinator import Coordinator
from gan_core.layout import Vectors
from gan_core.networks.models import layout_of
from gan_core.networks.update import initial_state
from gan_core.plan import Plan
from gan_core.policies.codecs import encode
from gan_core.store.engine import connect

MACHINES = (2, 8, 32)
SLOWEST, SPAN = 20.0, 8.0  # images a second, and how many times faster the fastest machine is
UNIT = 20  # images: a second of the slowest machine's time; the 5,000 digits are whole units
UNITS = 3  # of the fixed quorum, as in the demo
WARM = 3  # uncounted rounds at first, in which speeds become known
TARGET = 0.95
# The smallest plan that is still a GAN. Its rounds take about a sixth of the demo's, and its deadline is shorter by as much.
PLAN = Plan(
    latent_dim=4, generator_width=4, discriminator_width=4, batch_size=8, images_per_unit=UNIT, quorum=UNIT * UNITS,
    target_seconds=1.5, deadline_floor=10, deadline_ceiling=100, lease_seconds=30, codec="float32", iterations=10**7,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a class did in the measured rounds."""

    computed: float  # images, finished or not
    reached: int  # images that are in the model
    busy: float  # share of the machines' time
    usual: float  # the same in the median round: one without a stall
    seconds: float
    rounds: int
    speed: float  # images a second, if every machine computed all the time

    @property
    def share(self) -> float:
        return self.reached / self.computed

    @property
    def rate(self) -> float:
        return self.reached / self.seconds


def speeds(machines: int) -> list[float]:
    """Always the same ones, evenly spread over the span on a logarithmic scale, give or take a twentieth."""
    table = random.Random(0)
    return [SLOWEST * SPAN ** (n / (machines - 1)) * table.uniform(0.95, 1.05) for n in range(machines)]


def measure(room: School, name: str, plan: Plan, machines: int, seconds: float) -> Outcome:
    """Let a class of so many machines train for so long."""
    with connect(room.url) as connection:  # the class before has left long ago: an automatic quorum must not count it
        connection.execute("UPDATE classgan.workers SET last_seen = now() - interval '1 hour'")
    stop, fast, payload = threading.Event(), speeds(machines), payload_for(plan)
    urls = [room.student_url(f"student-{n}") for n in range(machines)]
    hands = [
        SimulatedMachine(url, f"{machines}-{n}", speed, stalls=n == machines // 2, payload=payload, stop=stop)
        for n, (url, speed) in enumerate(zip(urls, fast, strict=True))
    ]
    with Coordinator(room.url, name, plan, room.cache) as training, ThreadPoolExecutor(machines) as pool:

        def look(_: object) -> None:
            if not stop.is_set():  # the class would wait for this machine for ever
                training.stop_asked = "a machine that broke"

        runs = [pool.submit(hand.run) for hand in hands]
        for run in runs:
            run.add_done_callback(look)
        try:
            for _ in range(WARM):
                turn(training)
            moments = [time.monotonic()]
            while moments[-1] < moments[0] + seconds:
                turn(training)
                moments.append(time.monotonic())
        finally:
            stop.set()
            for run in runs:
                run.result()
        training.finish()
    work = [work for hand in hands for work in hand.work]
    return Outcome(
        computed=sum(w.images for w in work if w.iteration >= WARM),
        reached=reached(room, name),
        busy=busy(work, machines, moments[0], moments[-1]),
        usual=median([busy(work, machines, *ends) for ends in pairwise(moments)]),
        seconds=moments[-1] - moments[0],
        rounds=len(moments) - 1,
        speed=sum(fast),
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
    seconds = 2.0 if options.quick else 30.0
    rows, gains = [], []
    with school() as room:
        for machines in MACHINES:
            for kind, plan in ((f"quorum of {UNITS} units", PLAN), ("quorum auto", PLAN.changed(quorum="auto"))):
                outcome = measure(room, f"{machines}-{plan.quorum}", plan, machines, seconds)
                auto = plan.quorum == "auto"
                rows.append(_row(f"{machines} machines, {kind}", outcome, judged=auto and not options.quick))
                if auto:
                    gains.append(f"{1 / outcome.busy:.2f} × ({1 / outcome.usual:.2f} ×) with {machines}")
    return Section(
        name="share",
        title=f"what mixed machines compute and what becomes of it, {seconds:g} s each",
        columns=("images computed", "in the model", "busy", "busy, median round", "s a round", "images/s"),
        ratio="images/s",
        rows=tuple(rows),
        notes=(
            f"The fastest machine is {SPAN:g} times as fast as the slowest, a unit takes ±{JITTER:.0%}, and one machine "
            f"takes {STALL:g} times as long for each {STALL_EVERY}th lease. They wait instead of computing.",
            "The ratio's baseline is all machines at full speed, without a pause and without a stall.",
            f"If nobody ever waited (in the median round: without stalls), `auto` would do {', '.join(gains)} machines. "
            "`max_staleness` could bring no more than that.",
        ),
    )


def _row(label: str, outcome: Outcome, *, judged: bool) -> Row:
    return Row(
        label=label,
        cells=(
            f"{outcome.computed:,.0f}",
            f"{outcome.share:.1%}",
            f"{outcome.busy:.1%}",
            f"{outcome.usual:.1%}",
            f"{outcome.seconds / outcome.rounds:.2f}",
            f"{outcome.rate:,.0f}",
        ),
        figures={
            "computed": outcome.computed,
            "share": outcome.share,
            "busy": outcome.busy,
            "busy_in_the_median_round": outcome.usual,
            "images_per_second": outcome.rate,
            "rounds": outcome.rounds,
        },
        ratio=outcome.rate / outcome.speed,
        judgement=at_least(100 * outcome.share, 100 * TARGET, "% in the model") if judged else None,
    )
