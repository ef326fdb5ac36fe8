"""What a queued training is told: position, estimate, and the reason, in the very words."""

from datetime import UTC, datetime

import pytest

from gan_core.machines import Machine, Wanted
from gan_core.plan import Plan
from gan_core.scheduler.outlook import clock, outlooks
from gan_core.scheduler.placement.place import place
from gan_core.scheduler.placement.table import PLACEMENTS

NOW = datetime.now(UTC)


def told(machines, wanted, max_running=3, max_wait=3_600.0, waiting=0):
    round_ = place(machines, wanted, PLACEMENTS["balanced"], max_running=max_running, max_wait=max_wait)
    return outlooks(machines, round_, NOW, max_running=max_running, max_wait=max_wait, waiting=waiting)


def running(number, images, **more):
    return Wanted(id=number, images_left=images, started=True, in_turn=True, **more)


def at(seconds: float) -> str:
    return clock(datetime.fromtimestamp(NOW.timestamp() + seconds, UTC))


def test_busy_machines_are_named_with_the_time_when_the_first_is_free():
    gpus = [Machine(id=n, gpus=1, memory_mb=8_192, speed=100.0, training=n) for n in range(2)]
    (outlook,) = told(gpus, [running(0, 60_000), running(1, 90_000), Wanted(id=2, memory_mb=8_192)])
    assert outlook.reason == (
        f"needs 1 worker with a GPU with 8,192 MB of memory; 2 such workers are online, both busy until about {at(600)}"
    )
    assert outlook.position == 1
    assert (outlook.earliest - NOW).total_seconds() == pytest.approx(600 / 1.25)
    assert (outlook.latest - NOW).total_seconds() == pytest.approx(600 / 0.6)
    assert outlook.estimate() == f"{at(480)} to {at(1000)}"


def test_what_no_machine_ever_had_is_said_at_once():
    (outlook,) = told([Machine(id=1, gpus=1, memory_mb=8_192, speed=1.0, online=False)], [Wanted(id=1, gpus=2)])
    assert outlook.never
    assert outlook.reason == (
        "no machine of this class has 2 GPUs (the largest: 1 GPU with 8,192 MB); it waits until such a machine joins"
    )
    assert outlook.estimate() == "unknown"


def test_a_step_that_no_machine_has_room_for_is_said_with_its_size():
    small = Machine(id=1, gpus=1, memory_mb=8_192, speed=1.0, too_large=frozenset({1}))
    (outlook,) = told([small], [Wanted(id=1, step_mb=9_300)])
    assert outlook.never
    assert outlook.reason == (
        "one step takes 9,300 MB of memory, and no machine of this class has room for it: it waits until a larger one joins, "
        "or takes less with a smaller batch_size"
    )


def test_a_gang_that_is_larger_than_the_class_ever_was():
    (outlook,) = told([Machine(id=n) for n in range(2)], [Wanted(id=1, min_workers=3)])
    assert outlook.never
    assert outlook.reason == "needs 3 workers, but the class has only 2; it waits until more join"


def test_workers_that_have_joined_and_have_no_shift_yet_are_brought_in():
    """What they can do is known once they have one; until then nobody says "never" of them."""
    away = [Machine(id=n, online=False) for n in range(3)]
    for machines in ([], away):
        (outlook,) = told(machines, [Wanted(id=1, min_workers=2)], waiting=3)
        assert not outlook.never
        assert outlook.reason == (
            "3 workers have joined and are brought in now; it starts within seconds if they are what it needs"
        )
        assert outlook.estimate() == "unknown"
    (outlook,) = told(away, [Wanted(id=1, min_workers=5)], waiting=1)
    assert outlook.reason == "needs 5 workers, but the class has only 3; it waits until more join"


def test_machines_that_are_known_and_away():
    (outlook,) = told([Machine(id=0), Machine(id=1, online=False)], [Wanted(id=1, min_workers=2)])
    assert not outlook.never
    assert outlook.reason == "needs 2 workers; 1 such worker is online, 2 are known: it starts when 1 more is online"


def test_all_places_taken():
    machines = [Machine(id=n, speed=10.0, training=0) for n in range(3)]
    (outlook,) = told(machines, [running(0, 3_000), Wanted(id=1)], max_running=1)
    assert outlook.reason == f"one training runs at a time, and all places are taken until about {at(100)}"


def test_whose_turn_it_is():
    (outlook,) = told([Machine(id=1, speed=1.0)], [Wanted(id=1)])
    assert outlook.reason == "its turn has come: its coordinator is being started"
    assert outlook.earliest == NOW


def test_positions_follow_the_order_and_later_ones_start_later():
    machines = [Machine(id=n, speed=10.0, training=0) for n in range(2)]
    wanted = [running(0, 6_000), *(Wanted(id=n, images_left=3_000, queued_at=n) for n in (1, 2, 3))]
    found = told(machines, wanted, max_running=1)
    assert [(o.training, o.position) for o in found] == [(1, 1), (2, 2), (3, 3)]
    assert found[0].earliest < found[1].earliest < found[2].earliest
    assert all(o.earliest <= o.latest for o in found)


def test_no_class_no_estimate():
    (outlook,) = told([], [Wanted(id=1)])
    assert outlook.reason == "no worker has joined yet: it waits until one joins"


@pytest.mark.parametrize(
    ("changes", "at", "expected"),
    [
        ({"iterations": 50, "quorum": 1_875}, (10, 18_750, 18_750), 40 * 1_875),
        ({"epochs": 2.0}, (3, 4_000, 4_000), 6_000),
        ({"iterations": 5, "quorum": "auto"}, (2, 8_000, 8_000), 3 * 4_000),
        ({"iterations": 5}, (9, 10, 10), 0),
    ],
)
def test_images_left_follow_from_the_plan(changes, at, expected):
    assert Plan().changed(**changes).images_left(*at, 5_000) == expected


def test_more_workers_than_units_are_of_no_use():
    assert Plan().useful_workers() == 3
    assert Plan(quorum="auto").useful_workers() is None
