"""From the last needed submit to the next unit claimable, and what the time goes into."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from uuid import UUID, uuid4

import torch
from psycopg import Connection

from bench.children import Child
from bench.measure import interleaved, median, ratio
from bench.options import Options
from bench.photos import make_photos
from bench.report import Row, Section, at_most
from bench.school import School, school
from bench.spans import inside
from gan_core.layout import Vectors
from gan_core.networks.models import layout_of
from gan_core.networks.update import initial_state
from gan_core.plan import Plan
from gan_core.policies.codecs import CODECS, encode
from gan_core.presets import preset
from gan_core.store import student
from gan_core.store.engine import connect, wait_for_notice
from gan_core.units import Lease, Measures, Verdict

CONTRIBUTIONS = 4
UNIT = 320
TARGET = 0.5  # seconds
FIRST = 0.01  # seconds between the submits of the uncounted first turn
SETTLE = 1.0  # seconds in which the coordinator takes in what came before the last submit
MEASURES = Measures(images=UNIT, seconds=10, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5)
NEVER = 10_000  # iterations
STORED = "float32, state stored"  # the whole of it, behind every iteration
STORED_TARGET = 0.10  # of the turn, for all that storing the state keeps the class waiting
SHOWN = 0.001  # seconds below which a step is not worth a word


@dataclass
class Hand:
    """A student's machines that compute nothing: they hand in the same payload again and again."""

    connection: Connection  # submits
    waiting: Connection  # waits for work and claims it
    boot: UUID


@dataclass
class Class:
    """One training, always with an open iteration whose units its machines hold."""

    leader: Child
    payload: bytes
    hand: Hand
    machines: list[int]  # one for each lease
    leases: list[Lease] = field(default_factory=list)
    parts: dict[float, list[dict[str, float]]] = field(default_factory=dict)  # by pause before the last submit

    def begin(self) -> None:
        """Open the first iteration, and take one turn that doesn't count: the first of a process touches everything first."""
        self.leader.ask("open")
        self._claim_rest()
        self.turn(FIRST)

    def turn(self, settle: float) -> float:
        """Seconds from the last submit's commit until a unit of the next iteration is claimed."""
        self.leader.tell("turn")
        for lease in self.leases[:-1]:
            self._submit(lease)
        time.sleep(settle)
        self._submit(self.leases[-1])
        start = time.monotonic()
        self.leases = []
        self._claim_next()
        end = time.monotonic()
        spans = [(label, began, ended) for label, began, ended in self.leader.answer()["spans"]]
        self.parts.setdefault(settle, []).append(inside(spans, start, end))
        self._claim_rest()
        return end - start

    def _submit(self, lease: Lease) -> None:
        answer = student.submit(self.hand.connection, lease.id, self.hand.boot, MEASURES, self.payload)
        assert answer.verdict is Verdict.ACCEPTED, answer.reason

    def _claim_next(self) -> None:
        machine = self.machines[len(self.leases)]
        while not (lease := student.claim(self.hand.waiting, machine, self.hand.boot)):
            wait_for_notice(self.hand.waiting, 1.0)
        self.leases.append(lease)

    def _claim_rest(self) -> None:
        while len(self.leases) < CONTRIBUTIONS:
            self._claim_next()

    def mean_parts(self, settle: float) -> dict[str, float]:
        taken = self.parts[settle]
        return {label: fmean(parts[label] for parts in taken) for label in taken[0]}


def run(options: Options) -> Section:
    rounds = 1 if options.quick else 4
    rows: list[Row] = []
    with school() as room, ExitStack() as stack:
        photos = make_photos(room.folder / "photos", UNIT * CONTRIBUTIONS, (64, 64))
        plan = preset("dcgan").changed(
            data=f"folder:{photos}", images_per_unit=UNIT, quorum=UNIT * CONTRIBUTIONS, max_units_per_lease=1,
            lease_seconds=3_600, backup_leases=False, checkpoint_interval=NEVER,
        )  # fmt: skip
        if options.quick:
            plan = plan.changed(generator_width=16, discriminator_width=16)
        plans: dict[str, Plan] = {codec: plan.changed(codec=codec) for codec in CODECS}
        plans[STORED] = plans["float32"].changed(checkpoint_interval=1)
        hand = _hand(room, stack)
        classes = {label: _class(room, stack, label, plan, hand) for label, plan in plans.items()}
        for settle, when, labels in ((SETTLE, "one by one", tuple(classes)), (0.0, "all at once", tuple(CODECS))):

            def measure(label: str, settle: float = settle) -> float:
                seconds = classes[label].turn(settle)
                if label == STORED:
                    _await_stored(room, label)
                return seconds

            taken = interleaved({label: lambda name=label: measure(name) for label in labels}, rounds)
            rows.extend(_row(f"{label}, {when}", taken, label, classes[label].mean_parts(settle)) for label in labels)
    return Section(
        name="publish",
        title=f"seconds until the next unit is claimable, DCGAN 64x64, {CONTRIBUTIONS} contributions",
        columns=("seconds", "of which, in ms"),
        ratio="seconds",
        rows=tuple(rows),
        notes=(
            "One by one: the others were there a second before the last. All at once: no pause between the submits.",
            "State stored: weights, average and both optimisers go to the database behind every iteration; elsewhere never.",
            "Without Prefect: `train` adds about 15 ms for each task in between.",
        ),
    )


def _hand(room: School, stack: ExitStack) -> Hand:
    url = room.student_url("ada")
    connection, waiting = stack.enter_context(connect(url)), stack.enter_context(connect(url))
    waiting.execute("LISTEN classgan_work")
    return Hand(connection, waiting, uuid4())


def _class(room: School, stack: ExitStack, label: str, plan: Plan, hand: Hand) -> Class:
    random = torch.Generator().manual_seed(0)
    weights = initial_state(plan).weights
    gradients = (torch.randn(weights.part(p).shape, generator=random) * 1e-3 for p in ("generator", "discriminator"))
    payload = encode(Vectors(*gradients), layout_of(plan), plan.codec)
    machines = [student.register(hand.connection, f"{label}, {n}", hand.boot, "cpu", {}) for n in range(CONTRIBUTIONS)]
    opened = Class(stack.enter_context(room.leader(label, plan)), payload, hand, machines)
    opened.begin()
    return opened


def _await_stored(room: School, label: str) -> None:
    """Until the state of the newest weights is durable: writing it must not slow the next class down."""
    with connect(room.url) as connection:
        while connection.execute(
            "SELECT FROM classgan.trainings AS t WHERE name = %s AND NOT EXISTS"
            " (SELECT FROM classgan.checkpoints AS c WHERE c.training_id = t.id AND c.iteration = t.iteration)",
            (label,),
        ).fetchall():
            time.sleep(0.05)


def _row(label: str, taken: dict[str, list[float]], name: str, parts: dict[str, float]) -> Row:
    seconds, storing = median(taken[name]), parts["checkpoint"] / sum(parts.values())
    steps = ", ".join(f"{name} {part * 1000:.0f}" for name, part in parts.items() if part >= SHOWN)
    return Row(
        label=label,
        cells=(f"{seconds:.3f}", steps),
        figures={"seconds": seconds, **{f"{name}_seconds": part for name, part in parts.items()}},
        ratio=ratio(taken[name], taken["float32"]),
        judgement=at_most(100 * storing, 100 * STORED_TARGET, "% storing")
        if name == STORED
        else at_most(seconds, TARGET, "s"),
    )
