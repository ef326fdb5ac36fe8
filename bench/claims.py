"""How many claims a second the database answers, over one connection and over many."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from uuid import uuid4

import psycopg

from bench.measure import interleaved, median, ratio
from bench.options import Options
from bench.report import Row, Section, at_least
from bench.school import School, school
from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.engine import connect
from gan_core.units import TrainingState

# The smallest plan that is still a GAN: the claim is measured, not the indices it carries.
TINY = Plan(
    latent_dim=4, generator_width=4, discriminator_width=4, batch_size=8, images_per_unit=16, quorum=16,
    max_units_per_lease=1, lease_seconds=3_600,
)  # fmt: skip
NEEDED = 50  # claims a second: 500 workers with a lease every 10 s
MANY = 32  # connections
OTHERS = 19  # trainings that run at the same time
SLOWER = 1.2  # times that a claim may take among them
STUDENTS = 4  # who share them: no student may have that many
HELD = 3  # leases that a machine may hold
ROUND_TRIP = "bare round trips (SELECT 1), 1 connection"


@dataclass
class ClaimBench:
    """Opens iterations, one training after the other."""

    school: School
    units: int
    trainings: int = 0

    def open(self, units: int = 0) -> int:
        self.trainings += 1
        plan = TINY.changed(quorum=(units or self.units) * TINY.images_per_unit)
        with connect(self.school.url) as connection:
            row = trainings.create(connection, f"claims-{self.trainings}", plan.model_dump(mode="json"))
            trainings.start(connection, row.id, "data", 10**7, 100, b"weights")
            cut, position = cut_units(plan, 0, 10**7)
            unit_queue.create_units(connection, row.id, 0, sum(u.images for u in cut), position, cut)
        return row.id

    def close(self, training: int) -> None:
        with connect(self.school.url) as connection:
            trainings.set_state(connection, training, TrainingState.CANCELLED)

    def claims(self, connections: int, beside: int = 0) -> float:
        """Claims a second. A machine may hold few leases, so all claim that many, wait until those are ended, and go on.

        Args:
            beside: other trainings with open units; then every machine is placed on the last one.
        """
        others = [self.open(units=100) for _ in range(beside)]
        training, logins = self.open(), [self.school.student_url(f"student-{n}") for n in range(STUDENTS)]
        bursts, meetings = self.units // (connections * HELD), list[tuple[float, float]]()

        def end_leases() -> None:
            came = time.perf_counter()
            owner.execute("UPDATE classgan.leases SET ended_at = now() WHERE ended_at IS NULL")
            meetings.append((came, time.perf_counter()))

        def work(number: int) -> int:
            with psycopg.connect(logins[number % STUDENTS], autocommit=True) as mine:
                boot, claimed = uuid4(), 0
                worker = student.register(mine, f"desk-{number}", boot, "cpu", {})
                if beside:
                    owner.execute("INSERT INTO classgan.placements (worker_id, training_id, reason) VALUES (%s, %s, '')"
                        " ON CONFLICT (worker_id) WHERE ended_at IS NULL DO UPDATE SET training_id = excluded.training_id", (worker, training))  # fmt: skip
                for _ in range(bursts):
                    gate.wait()
                    claimed += sum(student.claim(mine, worker, boot) is not None for _ in range(HELD))
                gate.wait()
                return claimed

        gate = threading.Barrier(connections, end_leases, timeout=60)
        with connect(self.school.url) as owner, ThreadPoolExecutor(connections) as pool:
            claimed = sum(pool.map(work, range(connections)))
        assert claimed == bursts * connections * HELD, f"{claimed} units were claimed of {bursts * connections * HELD}"
        for opened in (training, *others):
            self.close(opened)
        return claimed / sum(came - went for (_, went), (came, _) in pairwise(meetings))

    def round_trips(self) -> float:
        """What a connection can do at best, a second."""
        with psycopg.connect(self.school.student_url("ada"), autocommit=True) as mine:
            began = time.perf_counter()
            for _ in range(self.units):
                mine.execute("SELECT 1").fetchone()
            return self.units / (time.perf_counter() - began)


def run(options: Options) -> Section:
    units, rounds = (200, 1) if options.quick else (5_000, 3)
    with school() as room:
        bench = ClaimBench(room, units)
        one, many = "claims, 1 connection", f"claims, {MANY} connections"
        among = f"claims, 1 connection, {OTHERS} other trainings"
        taken = interleaved(
            {
                ROUND_TRIP: bench.round_trips,
                one: lambda: bench.claims(1),
                among: lambda: bench.claims(1, OTHERS),
                many: lambda: bench.claims(MANY),
            },
            rounds,
        )
    rows, slower = [], ratio(taken[one], taken[among])
    for label, rates in taken.items():
        rate = median(rates)
        rows.append(
            Row(
                label=label,
                cells=(f"{rate:,.0f}", f"{1000 / rate:.2f}"),
                figures={"per_second": rate},
                ratio=ratio(rates, taken[ROUND_TRIP]),
                judgement=at_least(1 / slower, 1 / SLOWER, "of one training's rate")
                if label == among
                else None
                if label == ROUND_TRIP
                else at_least(rate, NEEDED, "a second"),
            )
        )
    return Section(
        name="claims",
        title=f"{units:,} units, one a lease",
        columns=("a second", "ms each"),
        ratio="rate",
        rows=tuple(rows),
        notes=(
            f"Among {OTHERS + 1} trainings a claim takes {slower:.2f} times as long as with a single one.",
            f"{NEEDED} a second is what 500 workers with a lease every 10 s ask for.",
            f"The {MANY} connections are threads of one Python process, which shares the cores with the server, and wait for each other: a lower bound.",
        ),
    )
