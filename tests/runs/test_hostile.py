"""A class with a hostile machine in it: what it sends is refused, others do its units, and the weights are those of an honest class."""

import threading
from collections.abc import Callable

import psycopg
import pytest
from classroom import same_bits
from poll import wait_until

from gan_core.coordinator.coordinator import Coordinator
from gan_core.coordinator.gates import Gates
from gan_core.layout import Vectors
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.reference import train_local
from gan_core.policies.announcements import announced
from gan_core.policies.codecs import encode
from gan_core.store import student
from gan_core.store.coordinator import events, unit_queue
from gan_core.store.viewers import ledger
from gan_core.units import EventKind, Verdict

Spoil = Callable[[Vectors], Vectors]


class Machine:
    """A student's machine that is told when to work, and spoils what it computed if it is hostile."""

    def __init__(self, classroom, login, plan, images, spoil: Spoil = lambda v: v) -> None:
        self.plan, self.images, self.spoil, self.boot = plan, images, spoil, classroom.shift(login).boot
        self.connection = psycopg.connect(classroom.student_url(login), autocommit=True)
        self.worker = student.register(self.connection, login, self.boot, "cpu", {})
        self.networks, self.layout = Networks(plan), layout_of(plan)

    def work(self) -> None:
        """One lease, from claim to answer."""
        lease = student.claim(self.connection, self.worker, self.boot)
        assert lease is not None
        payload = student.weights(self.connection, lease.training_id, lease.iteration)
        assert payload is not None
        weights = announced(self.plan, self.layout, payload)
        vectors, measures = contribute(self.plan, self.networks, self.images, lease.units, weights)
        answer = encode(self.spoil(vectors), self.layout, self.plan.codec, lease.units[0].seed)
        assert student.submit(self.connection, lease.id, self.boot, measures, answer).verdict is Verdict.ACCEPTED


def flipped(vectors: Vectors) -> Vectors:
    return Vectors(-vectors.generator, -vectors.discriminator)


@pytest.fixture
def connection(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def plan(tiny):
    """Four units an iteration, so that four machines do one each."""
    return tiny.changed(quorum=64, iterations=3)


def led(classroom, plan, connection, machines, honest):
    """Train: in each iteration these machines do a unit each, then an honest one does whatever is open again."""
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        while not training.is_done:
            number = training.state.iteration
            training.create_units()
            gathered = []
            gathering = threading.Thread(target=lambda: gathered.append(training.gather()))  # noqa: B023  joined below
            gathering.start()
            for machine in machines(number):
                machine.work()
            wait_until(lambda: gathered or is_open(connection, number), 30, "what the coordinator says")  # noqa: B023
            while not gathered:
                if is_open(connection, number):
                    honest.work()
                gathering.join(0.05)
            training.publish(gathered[0])
        training.finish()
    return training


def is_open(connection, number: int) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM classgan.units WHERE iteration = %s AND state = 'open'", (number,)
    ).fetchone()
    return row[0] > 0


def told(connection, kind: EventKind) -> list[str]:
    return [event.text for event in events.latest(connection) if event.kind is kind]


@pytest.mark.slow
def test_a_hostile_machine_changes_no_bit_earns_nothing_and_is_shut_out(classroom, plan, digits, connection):
    """Its contributions were first in the sum already; refused, they are taken out of it exactly."""
    plan = plan.changed(iterations=6)
    ada, grace, alan = (Machine(classroom, name, plan, digits) for name in ("ada", "grace", "alan"))
    mallory = Machine(classroom, "mallory", plan, digits, flipped)
    trained = led(
        classroom,
        plan,
        connection,
        lambda number: [mallory, ada, grace, alan] if number < 5 else [ada, grace, alan],
        honest=ada,
    )
    assert same_bits(trained.state, train_local(plan, digits))
    refusals = told(connection, EventKind.REFUSED)
    assert len(refusals) == 5
    for text in refusals:
        assert text.startswith("A contribution of mallory to iteration")
        assert "part points elsewhere than the others' of this round: agreement -0." in text
        assert "at least" in text
        assert text.endswith("Its units go to others.")
    assert {credit.login for credit in ledger.credits(connection) if credit.images} == {"ada", "grace", "alan"}
    with pytest.raises(psycopg.Error, match=r"suspended: 5 contributions were refused within an hour|terminating"):
        mallory.work()


@pytest.mark.slow
def test_a_connection_that_breaks_while_refusing_changes_nothing(classroom, plan, digits, connection, monkeypatch):
    """Before the refusal or after it: the coordinator comes back, and no contribution is in the sum that the database refused."""
    real, calls = unit_queue.refuse, []

    def breaking(link, contribution, reason):
        calls.append(contribution)
        if len(calls) == 2:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        real(link, contribution, reason)
        if len(calls) == 1:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    judge, answers = Gates.refusals, []

    def undecided(gates, plan, sketches, at_least):
        """Asked again after it found something, it finds nothing: whatever was found must not be forgotten."""
        answers.append({} if answers and answers[-1] else judge(gates, plan, sketches, at_least))
        return answers[-1]

    monkeypatch.setattr(unit_queue, "refuse", breaking)
    monkeypatch.setattr(Gates, "refusals", undecided)
    ada, grace, alan = (Machine(classroom, name, plan, digits) for name in ("ada", "grace", "alan"))
    mallory = Machine(classroom, "mallory", plan, digits, flipped)
    trained = led(classroom, plan, connection, lambda number: [mallory, ada, grace, alan], honest=ada)
    assert len(calls) == 3 + 2
    assert same_bits(trained.state, train_local(plan, digits))


def test_with_two_students_nobody_can_say_who_is_wrong(classroom, plan, digits, connection):
    """What the gates can't do: a class of two trains with whatever its half sends."""
    plan = plan.changed(iterations=1)
    ada, mallory = Machine(classroom, "ada", plan, digits), Machine(classroom, "mallory", plan, digits, flipped)
    led(classroom, plan, connection, lambda number: [mallory, ada, mallory, ada], honest=ada)
    assert told(connection, EventKind.REFUSED) == []
