"""Rounds that close in time, with real machines: all of them hand in what they have, and every image of an epoch is learned from once."""

import time
from types import SimpleNamespace

import psycopg
import pytest

from gan_core.coordinator.round import SLACK, grace_after
from gan_core.errors import StoreUnreachable
from gan_core.store import student
from gan_core.store.coordinator.unit_queue import LATEST
from gan_core.units import Submission, Verdict


@pytest.fixture
def plan(tiny):
    return tiny.changed(quorum="auto", images_per_unit=320, target_seconds=0.5, max_units_per_lease=16, iterations=5)


@pytest.fixture
def ask(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield lambda query: connection.execute(query).fetchall()


def test_all_machines_stop_when_the_round_closes_and_what_they_did_is_valid(classroom, plan, ask):
    with classroom.working(3) as shifts:
        training = classroom.train(plan)
    leases = ask("SELECT units, images, outcome FROM classgan.leases")
    assert any(
        images % plan.images_per_unit for _, images, outcome in leases if outcome == "accepted"
    )  # stopped within a unit
    assert {verdict for (verdict,) in ask("SELECT DISTINCT verdict::text FROM classgan.contributions")} <= {
        "accepted",
        "late",
    }
    assert training.state.images == ask("SELECT sum(images)::int FROM classgan.iterations")[0][0]
    assert sum(shift.tally.images for shift in shifts) >= training.state.images
    assert classroom.check_all(training.training_id) > 0
    assert ask("SELECT count(*) FROM classgan.checks WHERE NOT valid") == [(0,)]


def test_an_epoch_ends_with_each_image_in_the_model_once(classroom, plan, ask):
    with classroom.working(2):
        training = classroom.train(plan.changed(epochs=1, iterations=1))
    work = ask("SELECT slices FROM classgan.contributions WHERE verdict = 'accepted'")
    pieces = sorted((position, images) for (slices,) in work for position, images, _ in slices)
    ends = [position + images for position, images in pieces]
    assert [position for position, _ in pieces] == [0, *ends[:-1]]  # one follows the other, in the epoch's order
    assert (
        len(training.images) <= ends[-1] < len(training.images) + plan.images_per_unit
    )  # a unit goes on with the next


def test_a_round_in_which_nobody_was_there_waits_for_the_first(classroom, plan, ask):
    with classroom.working(1):  # starts some rounds later than the round
        classroom.train(plan.changed(target_seconds=0.05, iterations=2))
    assert all(images > 0 for (images,) in ask("SELECT images FROM classgan.iterations WHERE closed_at IS NOT NULL"))


def test_how_long_the_class_was_away_is_not_taken_for_a_slow_line(classroom, monkeypatch):
    """Or every machine would stop after one batch, for many rounds after a restart."""
    shift, tries = classroom.shift("ada"), []

    def submit(*_: object) -> Submission:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise StoreUnreachable("The class server restarts.")
        return Submission(verdict=Verdict.ACCEPTED, reason="")

    monkeypatch.setattr(student, "submit", submit)
    shift._submit(SimpleNamespace(id=1), b"", b"", None)
    assert shift._upload_seconds < (tries[-1] - tries[0]) / 2


def test_nobody_is_waited_for_longer_than_answers_usually_take():
    assert grace_after([], 10, 600) == 15 + SLACK  # nothing is known yet
    usual = [10.1, 10.15, 10.2, 10.12, 10.18]
    assert grace_after(usual, 10, 600) == 10 + SLACK
    slow = [12.0, 12.5, 13.0, 12.2, 12.8]  # everybody has a slow line
    assert grace_after(slow, 10, 12) == 12  # the plan's limit
    assert 12.5 < grace_after(slow, 10, 600) < 16
    assert grace_after([*usual, 19.0], 10, 600) < 11  # one that was frozen changes nothing
    assert grace_after([3.0, 3.1, *usual], 10, 600) == 10 + SLACK  # those who came back for more


def test_one_machine_of_a_hundred_is_not_waited_for_as_long_as_one_of_three():
    """It brings a hundredth of a round, and meanwhile the others don't compute."""
    punctual = [10.0, 10.01, 10.02]
    assert grace_after(punctual * LATEST, 10, 600) == 10 + SLACK
    assert 10.05 < grace_after(punctual * 34 * LATEST, 10, 600) < 10.11
