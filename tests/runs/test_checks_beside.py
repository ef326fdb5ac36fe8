"""Checks run beside a training: nobody waits for them, and they change nothing in it."""

import threading
import time

import pytest
from classroom import same_bits

from gan_core.coordinator import checker
from gan_core.coordinator.coordinator import Coordinator
from gan_core.networks.reference import train_local
from gan_core.settings import Settings
from gan_core.store.coordinator import checks, events
from gan_core.units import EventKind
from tasks.background import check_work


@pytest.fixture(autouse=True)
def _here(classroom, monkeypatch):
    monkeypatch.setattr(check_work, "LAST_SECONDS", 120.0)  # nothing is given up because this machine is busy
    monkeypatch.setattr(check_work, "settings", lambda: Settings(database_url=classroom.url, device="cpu"))


def trained(classroom, plan) -> tuple[Coordinator, list[bool]]:
    with (
        classroom.working(2),
        Coordinator(classroom.url, "test", plan, classroom.cache) as training,
        check_work.checked_work(training),
    ):
        while not training.is_done:
            training.create_units()
            training.publish(training.gather())
        training.finish()
    with training.link as link:
        connection = link.connection
        valid = [row[0] for row in connection.execute("SELECT valid FROM classgan.checks").fetchall()]
        assert checks.waiting(connection, training.training_id) == 0
        assert EventKind.INVALID not in [event.kind for event in events.latest(connection)]
    return training, valid


def test_what_waits_at_the_end_is_checked_and_the_weights_are_those_of_one_machine(classroom, tiny, digits):
    training, valid = trained(classroom, tiny)
    assert valid == [True] * 9
    assert same_bits(training.state, train_local(tiny, digits))


def test_a_check_that_never_ends_keeps_nobody(classroom, tiny, monkeypatch):
    """Iterations go on beside it, and when a person ends the training it is given up."""
    begun = threading.Event()

    def endless(plan, networks, images, units, weights, claimed, on_batch):
        begun.set()
        while True:
            on_batch()
            time.sleep(0.01)

    monkeypatch.setattr(checker, "check", endless)

    def train_until_ctrl_c() -> None:
        with (
            Coordinator(classroom.url, "test", tiny, classroom.cache) as training,
            check_work.checked_work(training),
        ):
            for _ in range(3):
                training.create_units()
                training.publish(training.gather())
            assert begun.wait(60)
            raise KeyboardInterrupt

    with classroom.working(1), pytest.raises(KeyboardInterrupt):
        train_until_ctrl_c()
    assert not [thread for thread in threading.enumerate() if thread.name == "checks"]


@pytest.mark.slow
def test_what_cannot_be_recomputed_here_accuses_nobody(classroom, tiny, monkeypatch):
    monkeypatch.setattr(checker, "check", lambda *args: 1 / 0)
    _, valid = trained(classroom, tiny)
    assert valid == []


@pytest.mark.slow
def test_while_the_instructors_machine_is_at_it_students_vouch_for_each_other(classroom, tiny, digits, monkeypatch):
    """The same leases go to two of them, and what agrees is valid. The weights are those of one machine all the same."""

    def endless(plan, networks, images, units, weights, claimed, on_batch):
        while True:
            on_batch()
            time.sleep(0.01)

    monkeypatch.setattr(checker, "check", endless)
    monkeypatch.setattr(checker, "COMPARING", 0.0)
    monkeypatch.setattr(checker, "RECOMPUTED", 0.0)
    plan = tiny.changed(iterations=1_000, quorum=192)
    enough = "SELECT count(*) = 8 FROM (SELECT FROM classgan.checks WHERE valid GROUP BY student_id HAVING count(*) >= 2) AS vouched"
    with (
        classroom.working(8),
        Coordinator(classroom.url, "test", plan, classroom.cache) as training,
        check_work.checked_work(training),
    ):
        while not training.link.call(lambda c: c.execute(enough).fetchone())[0]:
            training.create_units()
            training.publish(training.gather())
    plan = plan.changed(iterations=training.state.iteration)
    with training.link as link:
        valid = dict(
            link.connection.execute(
                "SELECT login, count(*) FROM classgan.checks JOIN classgan.students AS s ON s.id = student_id"
                " WHERE valid GROUP BY login"
            ).fetchall()
        )
        assert sorted(valid) == [f"student{number}" for number in range(8)]
        assert min(valid.values()) >= 2
        assert EventKind.INVALID not in [event.kind for event in events.latest(link.connection)]
    assert same_bits(training.state, train_local(plan, digits))


def test_beside_a_class_that_needs_the_machine_a_check_rests_for_what_it_computed_and_for_nothing_else(monkeypatch):
    """Not for the minutes in which nothing was there to be checked: it would rest for three times as long."""
    now, rests = [0.0], []
    monkeypatch.setattr(check_work.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(check_work, "_is_busy", lambda: True)
    pace = check_work._Pace()
    monkeypatch.setattr(pace.done, "wait", rests.append)
    now[0] = 100.0  # nothing came
    pace.begin()
    now[0] = 100.5
    pace()
    now[0] = 101.0
    pace()
    assert rests == [1.5, 1.5]
