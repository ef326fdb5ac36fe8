"""How soon a class is judged that computes far more than its instructor's machine can recompute: leases, answers and choices
are the database's, computing and its time are simulated.
"""

import random
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg

from bench.options import Options
from bench.report import Row, Section, at_least, at_most
from bench.school import School, school
from gan_core.coordinator.checker import RECOMPUTED
from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import checks, trainings, unit_queue
from gan_core.store.engine import connect
from gan_core.units import Lease, Measures

STUDENTS, HOUR = 30, 600  # machines; leases of 6 s that each of them computes
PER_CHECK = 20  # leases that a machine computes while the instructor's recomputes one: 2 min on a CPU for 6 s of a GPU
AGREE = 0.9  # of honest pairs: as of the float32 results in the table of `credit`
FIRST = 10  # results of everybody that are to be judged
PLAN = Plan(
    latent_dim=4, generator_width=4, discriminator_width=4, batch_size=8, images_per_unit=16, max_units_per_lease=1,
    quorum=STUDENTS * 16, lease_seconds=3_600,
)  # fmt: skip
LIAR = "liar"
PAYLOAD, TRAIL = bytes(100), bytes(100)
MEASURES = Measures(images=16, seconds=0.0, g_loss=1.0, d_loss=1.0, d_real_accuracy=0.5, d_fake_accuracy=0.5)


@dataclass
class Machine:
    """A student's, which lies or doesn't."""

    connection: psycopg.Connection
    worker: int
    boot: UUID
    lies: bool
    lease: Lease | None = None
    answers: int = 0

    def claim(self) -> bool:
        self.lease = student.claim(self.connection, self.worker, self.boot)
        return self.lease is not None

    def submit(self) -> None:
        if self.lease is not None:
            student.submit(self.connection, self.lease.id, self.boot, MEASURES, PAYLOAD, TRAIL)
            self.lease, self.answers = None, self.answers + 1


@dataclass
class Hour:
    """What came of one."""

    judged: int = 0  # leases until all honest students' first results were; 0: not within the hour
    least: int = 0  # results of an honest student that were judged in the end
    rounds: int = 0  # that were closed
    found: list[int] = field(default_factory=list)  # answers of each liar until he was out
    accused: int = 0  # honest results that were found invalid


@dataclass
class Class:
    """A training, its machines, and an instructor's machine that needs long for a check."""

    owner: psycopg.Connection
    training: int
    machines: dict[str, Machine]
    together: bool  # liars all make up the same numbers
    chance: random.Random
    hour: Hour = field(default_factory=Hour)
    busy: int = 0  # until the instructor's machine is done with its recomputation

    def spend(self, leases: int) -> Hour:
        """Rounds, one after the other, for so many leases' time."""
        position, passed = 0, 0
        while passed < leases:
            units, position = cut_units(PLAN, position, 10**6)
            unit_queue.create_units(self.owner, self.training, self.hour.rounds, STUDENTS * 16, position, units)
            while True in {machine.claim() for machine in self.machines.values()}:
                for machine in self.machines.values():
                    machine.submit()
                passed += 1
                self._judge(passed)
            included = [arrival.id for arrival in unit_queue.arrivals(self.owner, self.training, self.hour.rounds)]
            trainings.publish(self.owner, self.training, 0, self.hour.rounds, included, 0, position, b"weights")
            self.hour.rounds += 1
        self.hour.least = min(self._valid()[login] for login, one in self.machines.items() if not one.lies)
        return self.hour

    def _judge(self, passed: int) -> None:
        while pair := checks.next_pair(self.owner, self.training):
            lies = [worker.startswith(LIAR) for worker in pair.workers]
            alike = self.together if all(lies) else not any(lies) and self.chance.random() < AGREE
            if not alike or self.chance.random() < RECOMPUTED:
                checks.dispute(self.owner, pair)
                continue
            for contribution in pair.contribution_ids:
                checks.record(self.owner, contribution, True, "", {}, 0.0)
        self.busy -= 1
        if self.busy <= 0 and (waiting := checks.next_check(self.owner, self.training)):
            lies = waiting.worker.startswith(LIAR)
            checks.record(self.owner, waiting.contribution_id, not lies, "it is made up" if lies else "", {}, 0.0)
            self.busy = PER_CHECK
        out = [
            login
            for (login,) in self.owner.execute("SELECT login FROM classgan.students WHERE suspended <> ''").fetchall()
        ]
        for login in self.machines.keys() & out:
            gone = self.machines.pop(login)
            gone.connection.close()
            self.hour.accused += not gone.lies
            self.hour.found += [gone.answers] if gone.lies else []
        valid = self._valid()
        if not self.hour.judged and all(valid[login] >= FIRST for login, one in self.machines.items() if not one.lies):
            self.hour.judged = passed

    def _valid(self) -> Counter[str]:
        return Counter(
            dict(
                self.owner.execute(
                    "SELECT login, count(*) FROM classgan.checks JOIN classgan.students AS s ON s.id = student_id WHERE valid GROUP BY login"
                ).fetchall()
            )
        )


@contextmanager
def lesson(room: School, liars: int, together: bool, seed: int) -> Generator[Class]:
    """A class of thirty, of which so many lie in every answer."""
    logins = [f"{LIAR if number < liars else 'student'}-{number}" for number in range(STUDENTS)]
    machines = {}
    with connect(room.url) as owner:
        owner.execute("ALTER DATABASE classgan SET synchronous_commit = off")  # no time is measured here
        row = trainings.create(owner, "opinions", PLAN.model_dump(mode="json"))
        trainings.start(owner, row.id, "data", 10**6, len(PAYLOAD), b"weights")
        for login in random.Random(seed).sample(logins, STUDENTS):
            mine, boot = psycopg.connect(room.student_url(login), autocommit=True), uuid4()
            machines[login] = Machine(
                mine, student.register(mine, "desk", boot, "cpu", {}), boot, login.startswith(LIAR)
            )
        yield Class(owner, row.id, machines, together, random.Random(seed))
        for machine in machines.values():
            machine.connection.close()


def alone(room: School) -> None:
    """As it was without second opinions: nobody is asked for one."""
    with connect(room.url) as owner:
        (text,) = owner.execute("SELECT pg_get_functiondef('classgan.second_opinion'::regproc)").fetchone() or ("",)
        before, begin, after = text.partition("\nBEGIN\n")
        owner.execute(f"{before}{begin}    RETURN;\n{after}".encode())


LINES = {
    "only the instructor's machine": (3, False, False),
    "second opinions, nobody lies": (0, False, True),
    "second opinions, 3 lie, each in another way": (3, False, True),
    "second opinions, 3 lie together": (3, True, True),
}


def run(options: Options) -> Section:
    leases = 30 if options.quick else HOUR
    rows, rounds = list[Row](), 0
    for label, (liars, together, asked) in LINES.items():
        with school() as room:
            if not asked:
                alone(room)
            with lesson(room, liars, together, seed=0) as class_:
                hour = class_.spend(leases)
        rounds = rounds or hour.rounds
        caught = f"{len(hour.found)} of {liars}" + (
            f", after {min(hour.found)} to {max(hour.found)}" if hour.found else ""
        )
        rows.append(
            Row(
                label=label,
                cells=(
                    f"{hour.judged * 6 / 60:.0f} min" if hour.judged else "not",
                    f"{hour.least}",
                    caught if liars else "",
                    f"{hour.accused}",
                ),
                figures={"judged": hour.judged, "least": hour.least, "found": len(hour.found), "accused": hour.accused},
                ratio=hour.rounds / rounds,
                judgement=None
                if options.quick or not asked
                else at_least(hour.least, FIRST, "judged")
                if not hour.accused
                else at_most(hour.accused, 0, "accused"),
            )
        )
    return Section(
        name="opinions",
        title=f"{STUDENTS} GPU students for an hour, an instructor's machine that needs {PER_CHECK} times as long as they do",
        columns=(f"all judged {FIRST} times after", "fewest judged", "liars out, after answers", "honest suspended"),
        ratio="iterations",
        rows=tuple(rows),
        notes=(
            f"Leases, choices and streaks are the database's. Simulated: leases of 6 s, recomputations of {6 * PER_CHECK} s, and that {AGREE:.0%} of honest pairs agree.",
            "Two that lie together agree with each other; of the pairs that agree, one in sixteen is recomputed.",
            "Iterations: all machines answer at the same moment here, so each that gives a second opinion leaves a unit for another lease's time. "
            "Where machines finish at different times, it costs its own time only.",
        ),
    )
