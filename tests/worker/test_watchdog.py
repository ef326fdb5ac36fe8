"""A machine that is alive but stuck is told from one that is only slow."""

import pytest

from gan_core.worker import watchdog
from gan_core.worker.watchdog import STUCK, STUCK_AT_LEAST, Watchdog


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets: [seconds]."""
    now = [1000.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    return now


def test_a_machine_between_leases_is_never_stuck(clock):
    dog = Watchdog()
    clock[0] += 10_000
    assert dog.stuck() is None
    dog.begin(7)
    dog.end()
    clock[0] += 10_000
    assert dog.stuck() is None


def test_a_lease_without_a_batch_for_a_minute_is_stuck(clock):
    dog = Watchdog()
    dog.begin(7)
    clock[0] += STUCK_AT_LEAST - 1
    assert dog.stuck() is None
    clock[0] += 2
    stuck = dog.stuck()
    assert stuck is not None
    assert (stuck.lease, stuck.seconds) == (7, STUCK_AT_LEAST + 1)


def test_a_slow_machine_gets_many_times_its_own_usual_time(clock):
    """A batch takes it 10 s: a minute of silence means nothing, 200 s do."""
    dog = Watchdog()
    dog.begin(7)
    for _ in range(50):
        clock[0] += 10
        dog.feed()
    clock[0] += 10 * STUCK - 1
    assert dog.stuck() is None
    clock[0] += 2
    assert dog.stuck() is not None
