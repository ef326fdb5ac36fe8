"""Waiting machines are woken by what they can have, and by nothing else: each that is woken asks the class for work."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from answering import MEASURES

from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.units import Verdict


@pytest.fixture
def woken(database: str, connection: psycopg.Connection) -> Iterator[Callable[[], bool]]:
    """Whether waiting machines were woken since it was asked last."""
    with psycopg.connect(database, autocommit=True) as ear:
        ear.execute("LISTEN classgan_work")

        def ask() -> bool:
            connection.execute("NOTIFY classgan_work, 'the last'")
            notices = ear.notifies(timeout=60)
            heard = [next(notices).payload]
            while heard[-1] != "the last":
                heard.append(next(notices).payload)
            return len(heard) > 1

        yield ask


def close_in(connection: psycopg.Connection, seconds: float) -> None:
    """The iteration closes in time, and that is how much of it is left."""
    connection.execute(
        "UPDATE classgan.iterations SET target_seconds = 60, closes_at = now() + make_interval(secs => %s)", (seconds,)
    )


def test_a_late_answer_whose_units_another_has_wakes_nobody(connection, training, machine_of, woken):
    ada, grace = machine_of("ada"), machine_of("grace")
    lease = ada.claim()
    connection.execute("UPDATE classgan.leases SET leased_until = now() - interval '1 second'")
    assert grace.claim().units == lease.units
    woken()  # what has been so far
    assert ada.submit(lease) is Verdict.LATE
    assert not woken()


def test_an_answer_after_its_iteration_has_closed_wakes_nobody(connection, training, machine_of, woken):
    ada, grace = machine_of("ada"), machine_of("grace")
    lease = ada.claim()
    grace.work()
    (arrival,) = unit_queue.arrivals(connection, training, 0)
    trainings.publish(connection, training, 0, 0, [arrival.id], 16, 150 * 16, b"next")
    woken()  # what has been so far
    assert ada.submit(lease) is Verdict.LATE
    assert not woken()


@pytest.mark.parametrize("seconds", [None, 60, 1])
@pytest.mark.parametrize("how", ["unusable", "given back", "refused later"])
def test_units_that_open_again_wake_machines_while_they_can_have_them(
    connection, training, machine_of, woken, how, seconds
):
    """At the end of a round nothing is handed out."""
    ada = machine_of("ada")
    lease = ada.claim()
    if how == "refused later":
        ada.submit(lease)
    if seconds is not None:
        close_in(connection, seconds)
    woken()  # what has been so far
    if how == "given back":
        student.release(ada.connection, lease.id, ada.boot, "tired")
    elif how == "unusable":
        assert student.submit(ada.connection, lease.id, ada.boot, MEASURES, b"too short").verdict is Verdict.REFUSED
    else:
        (arrival,) = unit_queue.arrivals(connection, training, 0)
        unit_queue.refuse(connection, arrival.id, "not finite")
    assert connection.execute("SELECT count(*) FROM classgan.units WHERE state <> 'open'").fetchone() == (0,)
    assert woken() == (seconds != 1)
    assert (ada.claim() is not None) == (seconds != 1)
