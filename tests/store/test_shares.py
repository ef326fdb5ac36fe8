"""Fair shares: nobody is idle while another holds two, in whatever order machines ask."""

import random
from uuid import UUID, uuid4

import pytest

from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.migrate import add_student
from gan_core.units import Lease

Machine = tuple[int, UUID]


@pytest.fixture
def roomy(tiny) -> Plan:
    """Any machine of these tests would take sixteen units at once, if nobody else were there."""
    return tiny.changed(max_units_per_lease=16, target_seconds=3600)


@pytest.fixture
def opened(connection):
    """A function that opens so many units of a new training, and returns its id."""

    def make(count: int, plan: Plan, name: str = "test") -> int:
        row = trainings.create(connection, name, plan.model_dump(mode="json"))
        trainings.start(connection, row.id, "data", 5000, 100, b"weights")
        units, position = cut_units(plan, 0, 10**7, None, count * plan.images_per_unit)
        unit_queue.create_units(connection, row.id, 0, plan.quorum, position, units)
        return row.id

    return make


@pytest.fixture
def machines(connection):
    """A function that registers machines of these speeds, None where nothing is measured yet."""
    add_student(connection, "instructor")

    def make(speeds) -> list[Machine]:
        made = []
        for number, speed in enumerate(speeds):
            boot = uuid4()
            worker = student.register(connection, f"machine {number}", boot, "cpu", {})
            connection.execute("UPDATE classgan.workers SET images_per_second = %s WHERE id = %s", (speed, worker))
            made.append((worker, boot))
        return made

    return make


def nearly_equal(count: int, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [100 * chance.uniform(0.97, 1.03) for _ in range(count)]


def sizes(connection, machines: list[Machine]) -> list[int]:
    """Units that each gets, in this order of arrival; 0 for who gets none."""
    leases = [student.claim(connection, *machine) for machine in machines]
    return [len(lease.units) if lease else 0 for lease in leases]


@pytest.mark.parametrize("count", [3, 4, 8, 30])
@pytest.mark.parametrize("order", ["the fastest first", "the slowest first", "any"])
def test_of_as_many_units_as_machines_each_gets_one(connection, opened, machines, roomy, count, order):
    opened(count, roomy)
    speeds = sorted(nearly_equal(count), reverse=order == "the fastest first")
    if order == "any":
        random.Random(1).shuffle(speeds)
    assert sizes(connection, machines(speeds)) == [1] * count


@pytest.mark.parametrize(("count", "units"), [(3, 4), (3, 5), (4, 6), (8, 20), (30, 45)])
def test_what_cannot_be_shared_evenly_differs_by_one_unit(connection, opened, machines, roomy, count, units):
    opened(units, roomy)
    taken = sizes(connection, machines(nearly_equal(count)))
    assert sum(taken) == units
    assert max(taken) - min(taken) == 1


def test_a_fast_machine_takes_more_but_leaves_one_for_each_that_waits(connection, opened, machines, roomy):
    opened(12, roomy)
    assert sizes(connection, machines([800, 100, 100, 100])) == [9, 1, 1, 1]
    opened(4, roomy, "few")
    connection.execute("UPDATE classgan.leases SET ended_at = now()")
    trainings.set_state(connection, 1, "paused")
    assert sizes(connection, machines([800, 100, 100, 100])) == [1, 1, 1, 1]


def test_who_still_uploads_takes_no_unit_that_another_waits_for(connection, opened, machines, roomy):
    """A machine asks for its next lease before its last answer has arrived."""
    opened(3, roomy.changed(max_units_per_lease=1))
    first, second, third = machines(nearly_equal(3))

    def claim(machine: Machine) -> Lease | None:
        return student.claim(connection, *machine)

    assert claim(first) is not None
    assert claim(first) is None
    assert claim(second) is not None
    assert claim(third) is not None
    assert unit_queue.progress(connection, 1, 0).open == 0


@pytest.mark.parametrize("reason", ["drained", "silent", "placed elsewhere"])
def test_only_who_would_take_a_unit_is_waited_for(connection, opened, machines, roomy, reason):
    training = opened(4, roomy)
    other = trainings.create(connection, "other", roomy.model_dump(mode="json")).id
    first, second = machines([100, 100])
    connection.execute(
        {
            "drained": "UPDATE classgan.workers SET drained = 'a test' WHERE id = %(worker)s",
            "silent": "UPDATE classgan.workers SET last_seen = now() - interval '1 minute' WHERE id = %(worker)s",
            "placed elsewhere": "INSERT INTO classgan.placements (worker_id, training_id, reason) VALUES (%(worker)s, %(other)s, '')",
        }[reason],
        {"worker": second[0], "other": other},
    )
    assert len(student.claim(connection, *first).units) == 4
    assert unit_queue.progress(connection, training, 0).open == 0
