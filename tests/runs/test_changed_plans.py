"""A lease is judged by the plan that it was handed out with, whatever the plan is by the time of its answer."""

import threading

import psycopg
import pytest
from poll import wait_until

from gan_core.coordinator import plans
from gan_core.coordinator.coordinator import Coordinator
from gan_core.networks.models import layout_of
from gan_core.networks.update import initial_state
from gan_core.plan import Plan
from gan_core.policies.announcements import announce
from gan_core.policies.codecs import payload_size
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.units import Verdict
from gan_core.worker import shift as shifts
from gan_core.worker.shift import Shift


@pytest.fixture
def connection(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def class_of(classroom, connection, digits):
    """A function that makes the class of a plan."""
    made = []

    def make(plan: Plan) -> "Class":
        made.append(Class(classroom, connection, plan, digits))
        return made[-1]

    yield make
    for room in made:
        room.shift._main.close()
        room.shift._upload.close()


class Class:
    """A training whose iterations a test opens and closes by itself, and one machine."""

    def __init__(self, classroom, connection, plan: Plan, digits) -> None:
        self.connection, self.plan, self.digits, self._iteration, self._position = connection, plan, digits, 0, 0
        layout = layout_of(plan)
        self.weights = announce(plan, layout, 0, initial_state(plan).weights, None).payload
        self.id = trainings.create(connection, "test", plan.model_dump(mode="json")).id
        size = payload_size(layout, plan.codec)
        trainings.start(connection, self.id, digits.fingerprint, len(digits), size, self.weights)
        self.shift = classroom.shift("ada")
        self.shift.worker = self.shift._main.call(lambda c: student.register(c, "ada", self.shift.boot, "cpu", {}))
        self.open()

    def open(self) -> None:
        units, self._position = cut_units(self.plan, self._position, len(self.digits))
        unit_queue.create_units(self.connection, self.id, self._iteration, self.plan.quorum, self._position, units)

    def close(self) -> None:
        trainings.publish(self.connection, self.id, 0, self._iteration, [], 0, 0, self.weights)
        self._iteration += 1

    def change(self, **knobs) -> None:
        """As the coordinator does it between two iterations."""
        before, self.plan = self.plan, self.plan.changed(**knobs)
        wanted = self.plan.model_dump(mode="json")
        trainings.want_plan(self.connection, self.id, wanted, "a test")
        trainings.change_plan(self.connection, self.id, wanted, before.differences(self.plan))


CHANGES = [{"learning_rate_g": 5e-4, "learning_rate_d": 5e-4}, {"batch_size": 16}, {"beta1": 0.9}]


@pytest.mark.parametrize("knobs", CHANGES, ids=lambda knobs: next(iter(knobs)))
@pytest.mark.parametrize("prepared", ["before the change", "after it"])
def test_a_late_answer_of_an_honest_machine_is_valid_after_a_change_of_the_plan(
    classroom, connection, class_of, tiny, knobs, prepared
):
    """Computed with the plan of its lease, also by a machine that asks for the plan only now, and recomputed with it."""
    room = class_of(tiny.changed(images_per_unit=48, quorum=96))
    shift = room.shift
    lease = shift._main.call(shift._claim)
    computed = shift._compute(lease) if prepared == "before the change" else None
    room.close()
    room.change(**knobs)
    room.open()
    answer = shift._submit(lease, *(computed or shift._compute(lease)))[2]
    assert answer.verdict is Verdict.LATE
    assert classroom.check_all(room.id) == 1
    assert connection.execute("SELECT valid, reason FROM classgan.checks").fetchall() == [(True, "")]
    assert shift._main.call(student.my_credit)[:2] == (1, 48)
    # The next lease is of the new plan again.
    lease = shift._main.call(shift._claim)
    shift._submit(lease, *shift._compute(lease))
    assert shift._prepare(lease).plan == room.plan
    assert classroom.check_all(room.id) == 1
    assert connection.execute("SELECT bool_and(valid) FROM classgan.checks").fetchone() == (True,)


@pytest.mark.parametrize("before", [True, False])
def test_late_credit_is_what_the_plan_of_the_lease_promised(class_of, tiny, before):
    room = class_of(tiny.changed(credit_late=before))
    lease = room.shift._main.call(room.shift._claim)
    room.close()
    room.change(credit_late=not before)
    room.open()
    room.shift._submit(lease, *room.shift._compute(lease))
    assert room.shift._main.call(student.my_credit)[0] == before


@pytest.mark.parametrize("before", ["sampled", "off"])
def test_a_late_answer_is_checked_if_the_plan_of_its_lease_said_so(connection, class_of, tiny, before):
    room = class_of(tiny.changed(checks=before))
    lease = room.shift._main.call(room.shift._claim)
    room.close()
    room.change(checks="off" if before == "sampled" else "sampled")
    room.open()
    room.shift._submit(lease, *room.shift._compute(lease))
    assert connection.execute("SELECT count(*) FROM classgan.checks").fetchone()[0] == (before == "sampled")


def test_the_class_knows_what_a_step_takes_before_it_leases_and_when_the_plan_changes(
    classroom, connection, tiny, monkeypatch
):
    """A machine with memory for 7 GB takes part in batches of 7 and not in those of 8."""
    monkeypatch.setattr(plans, "step_bytes", lambda plan: plan.batch_size << 30)
    monkeypatch.setattr(shifts, "hardware", lambda device: {"memory_mb": 2 * 7 << 10})
    small, stop = tiny.changed(batch_size=7, iterations=5), threading.Event()
    shift = Shift(classroom.student_url("ada"), "ada", "cpu", classroom.cache, should_stop=stop.is_set)
    working = threading.Thread(target=shift.run)
    working.start()
    try:
        led = classroom.train(small, until=2)
        large = small.changed(batch_size=8).model_dump(mode="json")
        trainings.want_plan(connection, led.training_id, large, "a test")
        with Coordinator(classroom.url, "test", small, classroom.cache) as again:
            again.create_units()
            said = "SELECT message FROM classgan.workers WHERE message LIKE 'One step of %'"
            wait_until(lambda: connection.execute(said).fetchone(), what="the machine reads why it has no work")
    finally:
        stop.set()
        working.join()
    assert connection.execute("SELECT id FROM classgan.leases WHERE iteration >= 2").fetchall() == []
    assert "takes 8192 MB of memory, and this machine has room for 7168 MB" in connection.execute(said).fetchone()[0]
