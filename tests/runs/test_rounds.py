"""How an iteration closes: at the quorum, at the deadline, or because a person says so; and who may close it."""

import statistics
import threading

import psycopg
import pytest
from poll import wait_until

from gan_core.coordinator import leadership
from gan_core.coordinator.coordinator import Coordinator
from gan_core.coordinator.round import deadline_after
from gan_core.errors import Finished, LeadLost
from gan_core.store import student
from gan_core.store.coordinator import events, trainings, unit_queue
from gan_core.units import TrainingState


@pytest.fixture
def connection(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


def sleeper(classroom):
    """A machine that takes a unit and is never heard of again."""
    shift = classroom.shift("sleepy")
    with psycopg.connect(classroom.student_url("sleepy"), autocommit=True) as theirs:
        worker = student.register(theirs, "laptop", shift.boot, "cpu", {})
        lease = student.claim(theirs, worker, shift.boot)
    assert lease is not None
    return shift, lease


@pytest.mark.slow
def test_after_the_deadline_the_minimum_quorum_suffices_and_the_rest_comes_next(classroom, tiny, connection):
    """One machine sleeps on its unit; the class doesn't wait for ever, and another iteration learns from its images."""
    plan = tiny.changed(deadline_floor=0.1, deadline_ceiling=0.5, min_quorum=0.6, lease_seconds=3600)
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        training.create_units()
        _, lease = sleeper(classroom)
        with classroom.working(1):
            gathered = training.gather()
        training.publish(gathered)
        assert gathered.images == training.state.images == 32
        assert dict(connection.execute("SELECT state::text, count(*) FROM classgan.units GROUP BY 1").fetchall()) == {
            "done": 2,
            "stale": 1,
        }
        assert training.create_units() == 3
    first, *others = connection.execute(
        "SELECT seed, indices FROM classgan.units WHERE iteration = 1 ORDER BY ordinal"
    ).fetchall()
    assert first == (lease.units[0].seed, list(lease.units[0].indices))
    seen = connection.execute("SELECT unnest(indices) FROM classgan.units WHERE iteration = 0").fetchall()
    assert not {index for _, indices in others for index in indices} & {index for (index,) in seen}
    assert connection.execute("SELECT outcome FROM classgan.leases WHERE id = %s", (lease.id,)).fetchone() == (
        "the iteration closed",
    )


@pytest.mark.slow
def test_an_epoch_ends_when_all_its_images_were_learned_from(classroom, tiny, connection):
    """The last iteration closes early, too: one more learns from what it left over, and no image comes twice."""
    plan = tiny.changed(epochs=80 / 5_000, deadline_floor=0.1, deadline_ceiling=2, min_quorum=0.6, lease_seconds=3600)
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        while not training.is_done:  # after two that close early; on a busy computer, later ones may, too
            training.create_units()
            if training.state.iteration < 2:
                sleeper(classroom)
            with classroom.working(1):
                training.publish(training.gather())
        assert training.state.iteration >= 3
    learned = connection.execute(
        "SELECT unnest(indices) FROM classgan.units WHERE state = 'done' ORDER BY 1"
    ).fetchall()
    assert len(learned) == len(set(learned)) == training.state.position  # all that was ever cut
    assert len(learned) >= 112  # seven whole units; each later iteration that closes early brings fresh ones, too


@pytest.mark.slow
def test_without_the_minimum_quorum_no_deadline_closes_an_iteration(classroom, tiny):
    plan = tiny.changed(deadline_floor=0.1, deadline_ceiling=0.1, min_quorum=1.0, lease_seconds=2)
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        training.create_units()
        sleeper(classroom)
        with classroom.working(1):
            assert training.gather().images == plan.quorum  # the lease ran out, somebody else did it


def test_an_iteration_closes_when_its_other_units_are_given_up(classroom, tiny, connection, monkeypatch):
    """One unit's numbers are not finite whoever computes it: the iteration goes on without it."""
    from gan_core.worker import shift as shifts

    real = shifts.contribute

    def broken(plan, networks, images, units, *rest):
        vectors, measures = real(plan, networks, images, units, *rest)
        if units[0].ordinal == 1:
            vectors.generator[0] = float("nan")
        return vectors, measures

    monkeypatch.setattr(shifts, "contribute", broken)
    with classroom.working(2), Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
        training.create_units()
        gathered = training.gather()
        training.publish(gathered)
    assert gathered.images == 32
    with Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
        training.create_units()
    spoilt, seeds = (
        {seed for (seed,) in connection.execute("SELECT seed FROM classgan.units WHERE " + which).fetchall()}
        for which in ("iteration = 0 AND ordinal = 1", "iteration = 1")
    )
    assert not spoilt & seeds  # nobody meets it again
    told = [event.text for event in events.latest(connection)]
    assert told[-1] == "Iteration 0 closed with 32 of 48 images: the other units were given up."
    assert (
        sum("gave unit 1 of iteration 0 back: generator holds numbers that are not finite" in text for text in told)
        >= 3
    )


def test_a_deadline_is_learnt_from_the_classes_own_times(classroom, tiny, connection):
    plan = tiny.changed(deadline_floor=1, deadline_ceiling=50)
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        assert (
            deadline_after(unit_queue.arrival_seconds(connection, training.training_id), plan) == 50
        )  # nothing is known yet
        with classroom.working(2):
            for _ in range(3):
                training.create_units()
                training.publish(training.gather())
        connection.execute(
            "UPDATE classgan.contributions SET submitted_at = i.opened_at + interval '10 seconds' + id * interval '1 second'"
            " FROM classgan.iterations i WHERE i.number = contributions.iteration"
        )
        seconds = unit_queue.arrival_seconds(connection, training.training_id)
        middle = statistics.median(seconds)
        spread = statistics.median(abs(s - middle) for s in seconds)
        assert deadline_after(unit_queue.arrival_seconds(connection, training.training_id), plan) == pytest.approx(
            max(3 * middle, middle + 6 * 1.4826 * spread)
        )
        for seconds, deadline in ((0.1, 1), (4, 12), (40, 50)):  # three times what is usual, between floor and ceiling
            connection.execute(
                "UPDATE classgan.contributions SET submitted_at = i.opened_at + make_interval(secs => %s)"
                " FROM classgan.iterations i WHERE i.number = contributions.iteration",
                (seconds,),
            )
            assert deadline_after(unit_queue.arrival_seconds(connection, training.training_id), plan) == pytest.approx(
                deadline
            )


@pytest.mark.parametrize("state", [TrainingState.PAUSED, TrainingState.CANCELLED])
def test_a_person_ends_the_waiting(classroom, tiny, connection, state):
    with Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
        training.create_units()
        trainings.set_state(connection, training.training_id, state)
        with pytest.raises(Finished, match=state):
            training.gather()


@pytest.mark.slow
def test_a_training_says_when_it_waits_for_workers(classroom, tiny, connection):
    with Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
        training.create_units()
        waiting = threading.Thread(target=training.gather)
        waiting.start()
        message = wait_until(lambda: trainings.get(connection, "test").message, 20, "a message")
        assert message == "waiting for workers: 0 online, 1 needed"
        with classroom.working(1):
            waiting.join()


def test_a_second_coordinator_stands_by_until_the_first_is_gone(classroom, tiny, connection):
    plan, led = tiny.changed(iterations=2), []
    with Coordinator(classroom.url, "test", plan, classroom.cache) as first:
        second = threading.Thread(target=lambda: led.append(classroom.train(plan)))
        second.start()
        wait_until(
            lambda: connection.execute("SELECT 1 FROM classgan.coordinators WHERE NOT leads").fetchone(),
            20,
            "the standby",
        )
        with classroom.working(1):
            first.create_units()
            first.publish(first.gather())
            assert not led
            first.__exit__()
            second.join()
    assert led[0].state.iteration == 2
    assert trainings.get(connection, "test").state is TrainingState.SUCCEEDED


@pytest.mark.slow
def test_a_coordinator_that_hangs_is_cut_off_although_its_process_lives(classroom, tiny, connection, monkeypatch):
    for name, seconds in (("BEAT", 0.1), ("SILENT", 1.0), ("HUNG", 0.5)):
        monkeypatch.setattr(leadership, name, seconds)
    with classroom.working(1), Coordinator(classroom.url, "test", tiny, classroom.cache) as hung:
        hung.create_units()  # and then its work stands still, for whatever reason
        classroom.train(tiny)
    assert trainings.get(connection, "test").state is TrainingState.SUCCEEDED


@pytest.mark.slow
def test_who_has_lost_the_lead_cannot_publish(classroom, tiny, connection):
    """Its connection was cut, and another has moved the training on: the late publish is refused, nothing changes."""
    plan = tiny.changed(iterations=3)
    with classroom.working(2), Coordinator(classroom.url, "test", plan, classroom.cache) as old:
        old.create_units()
        gathered = old.gather()
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
        )
        classroom.train(plan)
        with pytest.raises(LeadLost, match="meanwhile"):
            old.publish(gathered)
    assert trainings.get(connection, "test").iteration == 3
