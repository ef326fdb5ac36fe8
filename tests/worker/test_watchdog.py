"""A machine that is alive but stuck is told from one that is only slow."""

import pytest

from gan_core.worker import watchdog
from gan_core.worker.watchdog import Pulse


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets: [seconds]."""
    now = [1000.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    return now


def test_a_machine_between_leases_is_never_stuck(clock):
    heart = Pulse()
    clock[0] += 10_000
    assert heart.stuck() is None
    heart.begin(7)
    heart.end()
    clock[0] += 10_000
    assert heart.stuck() is None


def test_a_lease_without_a_batch_for_a_minute_is_stuck(clock):
    heart = Pulse()
    heart.begin(7)
    clock[0] += watchdog.STUCK_AT_LEAST - 1
    assert heart.stuck() is None
    clock[0] += 2
    stuck = heart.stuck()
    assert stuck is not None
    assert (stuck.lease, stuck.seconds) == (7, watchdog.STUCK_AT_LEAST + 1)


def test_a_slow_machine_gets_many_times_its_own_usual_time(clock):
    """A batch takes it 10 s: a minute of silence means nothing, 200 s do."""
    heart = Pulse()
    heart.begin(7)
    for _ in range(50):
        clock[0] += 10
        heart.beat()
    clock[0] += 10 * watchdog.STUCK - 1
    assert heart.stuck() is None
    clock[0] += 2
    assert heart.stuck() is not None
