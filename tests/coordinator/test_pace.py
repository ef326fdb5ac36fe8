"""How long an iteration lasts and how many images it needs follow from what was measured."""

import psycopg
import pytest

from gan_core.coordinator.pace import quorum_for, seconds_for, why_so_long
from gan_core.plan import Plan
from gan_core.store.coordinator import unit_queue
from gan_core.store.coordinator.unit_queue import Pace

IN_TIME = Plan().changed(quorum="auto", images_per_unit=100)


def test_an_automatic_quorum_is_what_the_machines_compute_in_the_target_time():
    """10 s: the fast one computes 1,000 images, the slow one 200, the slowest one image; the unknown one begins with a unit."""
    plan = IN_TIME.changed(target_seconds=10)
    assert quorum_for(plan, Pace([100, 20, 0.1, None])) == (1301, 10)
    assert quorum_for(plan, Pace([])) == (100, 10)  # nobody is there yet: one unit waits for the first


@pytest.mark.parametrize(
    ("lost", "seconds", "why"),
    [
        (None, 10, "measured in them"),
        (0.01, 4, "for 0.01 s of each; no shorter ones"),  # a class on one machine
        (1.0, 25, "last 25 s: its usual machine fetches, submits and waits for 1.00 s of each"),  # 100 Mbit/s
        (4.0, 50, "for 4.00 s of each"),  # 10 Mbit/s
        (400.0, 300, "last 300 s: its usual machine fetches, submits and waits for 400.00 s of each; no longer ones"),
    ],
)
def test_an_iteration_is_as_short_as_transfers_allow(lost, seconds, why):
    assert seconds_for(IN_TIME, lost) == pytest.approx(seconds)
    assert why in why_so_long(IN_TIME, Pace([100.0], lost))


def test_what_the_plan_says_goes_first():
    assert seconds_for(IN_TIME.changed(target_seconds=7), 3.0) == 7
    assert "7 s, as its plan says" in why_so_long(IN_TIME.changed(target_seconds=7), Pace([], 3.0))
    assert seconds_for(Plan(), 3.0) == 10  # waits for its images, so nothing follows from what is lost
    assert why_so_long(Plan(), Pace([], 3.0)) == ""


def test_what_an_iteration_costs_beside_computing_is_read_from_the_ledger(classroom, tiny):
    """The usual machine's: one that came late, or says that it computed nothing, doesn't count for more than one."""
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        with classroom.working(2):
            trained = classroom.train(tiny.changed(quorum="auto", target_seconds=0.5, iterations=6))
        ask = lambda: unit_queue.pace(connection, trained.training_id).lost  # noqa: E731
        assert 0 <= ask() < 5
        connection.execute("UPDATE classgan.iterations SET closed_at = closes_at, target_seconds = 20")
        connection.execute(
            "UPDATE classgan.contributions SET seconds = 18.5 / (SELECT count(*) FROM classgan.contributions AS c WHERE c.iteration = contributions.iteration AND c.worker_id = contributions.worker_id AND c.verdict = 'accepted') WHERE verdict = 'accepted'"
        )
        assert ask() == pytest.approx(1.5)
        connection.execute(
            "UPDATE classgan.contributions SET seconds = 0 WHERE iteration = (SELECT max(iteration) FROM classgan.contributions)"
        )
        assert ask() == pytest.approx(1.5)


def test_a_training_whose_iterations_wait_for_their_images_has_lost_nothing(classroom, tiny):
    with psycopg.connect(classroom.url, autocommit=True) as connection, classroom.working(1):
        trained = classroom.train(tiny)
        assert unit_queue.pace(connection, trained.training_id).lost is None
