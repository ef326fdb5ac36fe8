"""A person's word: pause, resume, cancel, change. And what the training does when its numbers go wrong."""

import re
import threading
from contextlib import suppress

import psycopg
import pytest
import torch
from classroom import same_bits
from poll import wait_until

from gan_core.coordinator import coordinator as coordinators
from gan_core.coordinator.coordinator import Coordinator
from gan_core.errors import Finished, PlanError, TrainingError
from gan_core.networks.reference import train_local
from gan_core.store.coordinator import events, runs, trainings
from gan_core.units import EventKind, TrainingState
from tasks import control


@pytest.fixture
def connection(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


def sentences(connection, kind: EventKind) -> list[str]:
    return [event.text for event in events.latest(connection) if event.kind is kind]


def train_until_finished(classroom, plan) -> None:
    with suppress(Finished):
        classroom.train(plan)


# Pause, resume, cancel


@pytest.mark.slow
def test_a_paused_training_goes_on_to_the_weights_of_an_unbroken_one(classroom, tiny, digits, connection):
    with classroom.working(2):
        endless = tiny.changed(iterations=10_000)
        first = threading.Thread(target=train_until_finished, args=(classroom, endless))
        first.start()
        wait_until(lambda: (row := trainings.find(connection, "test")) and row.iteration > 2, 30, "some iterations")
        assert "pauses" in control.pause(connection, "test", "an instructor")
        first.join()
        paused = trainings.get(connection, "test")
        assert paused.state is TrainingState.PAUSED
        assert paused.iteration > 2
        plan = tiny.changed(iterations=paused.iteration + 5)
        trained = classroom.train(plan)
    assert same_bits(trained.state, train_local(plan, digits))
    assert sentences(connection, EventKind.PAUSED) == ["Paused by an instructor: it was running."]


def test_what_is_out_is_still_accepted_when_a_training_pauses(classroom, tiny, connection):
    """A machine that computes while somebody pauses has not worked in vain: its unit is done when the training goes on."""
    slow = threading.Event()
    shift = classroom.shift("slow", should_stop=slow.is_set)
    real = shift._compute
    holding = threading.Event()

    def held(lease):
        holding.set()
        wait_until(lambda: trainings.get(connection, "test").state is TrainingState.PAUSED, 30, "the pause")
        return real(lease)

    shift._compute = held
    with Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
        training.create_units()
        thread = threading.Thread(target=shift.run)
        thread.start()
        assert holding.wait(30)
        with psycopg.connect(classroom.url, autocommit=True) as other:
            control.pause(other, "test", "an instructor")
        with pytest.raises(Finished, match="paused after iteration 0"):
            training.gather()
        slow.set()
        thread.join()
    states = dict(connection.execute("SELECT state::text, count(*) FROM classgan.units GROUP BY 1").fetchall())
    assert states == {"done": 1, "open": 2}


@pytest.mark.parametrize(("act", "kind"), [(control.pause, EventKind.PAUSED), (control.cancel, EventKind.CANCELLED)])
def test_an_iteration_that_still_ends_after_a_pause_or_a_cancel_counts_in_run_and_history(
    classroom, tiny, connection, act, kind
):
    with classroom.working(1):
        with Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
            training.create_units()
            gathered = training.gather()
            act(connection, "test", "an instructor")
            training.publish(gathered)
        (run,) = runs.every(connection, "test")
        (told,) = [event for event in events.latest(connection) if event.kind is kind]
        assert (run.last_iteration, told.iteration, trainings.get(connection, "test").iteration) == (1, 1, 1)
        if kind is EventKind.PAUSED:
            classroom.train(tiny)
            assert [run.last_iteration for run in runs.every(connection, "test")] == [3, 1]


@pytest.mark.slow
def test_ctrl_c_on_the_coordinator_pauses_in_good_order(classroom, tiny, digits, connection, monkeypatch):
    monkeypatch.setattr(coordinators, "QUIET", 60.0)  # both machines may be slow to begin
    plan = tiny.changed(iterations=4)
    with classroom.working(2):
        with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
            training.create_units()
            training.stop_asked = "Ctrl-C"
            training.publish(training.gather())  # the iteration at hand ends
            with pytest.raises(Finished):
                training.stop_if_asked()
        assert "stopped with Ctrl-C; `classgan resume test` goes on" in trainings.get(connection, "test").message
        trained = classroom.train(plan)
    assert same_bits(trained.state, train_local(plan, digits))


def test_cancelled_is_for_good(classroom, tiny, connection):
    with classroom.working(1):
        classroom.train(tiny, until=1)
    control.cancel(connection, "test", "an instructor")
    with pytest.raises(TrainingError, match="was cancelled"):
        classroom.train(tiny)
    with pytest.raises(TrainingError, match="cancelled already"):
        control.cancel(connection, "test", "an instructor")
    with pytest.raises(TrainingError, match="nothing to pause"):
        control.pause(connection, "test", "an instructor")
    assert trainings.get(connection, "test").state is TrainingState.CANCELLED


# Changing the plan


def test_a_change_holds_from_the_next_iteration_and_is_on_record(classroom, tiny, connection):
    plan = tiny.changed(iterations=6, quorum=32)
    with classroom.working(2):
        with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
            training.create_units()
            said = control.change(connection, "test", {"quorum": 64, "batch_size": 16}, "grace")
            assert said == "test, from its next iteration on: batch_size 8 → 16, quorum 32 → 64."
            assert training.gather().images == 32  # the open one ends as it began
        # The first contribution of iteration 0 is there; led again, the change comes with iteration 1.
        classroom.train(plan)
    images = connection.execute("SELECT images FROM classgan.iterations ORDER BY number").fetchall()
    assert images == [(32,)] + 5 * [(64,)]
    assert sentences(connection, EventKind.PLAN) == [
        "From iteration 1 on, by grace: batch_size 8 → 16, quorum 32 → 64."
    ]


@pytest.mark.slow
def test_machines_compute_with_the_changed_plan_and_a_repetition_does_not_cross_it(classroom, tiny, connection):
    """Gradients of another batch size, another learning rate: after a crash the weights are still the same."""
    plan = tiny.changed(iterations=7, contribution="gradient", checkpoint_interval=100)
    with classroom.working(2):
        classroom.train(plan, until=3)
        control.change(connection, "test", {"learning_rate_g": 0.01, "iterations": 7}, "grace")
        before = classroom.train(plan, until=6).state
        after = classroom.train(plan, until=6).state  # from the checkpoint at the change, and three repeated iterations
        assert same_bits(before, after)
    checkpoints = connection.execute("SELECT iteration FROM classgan.checkpoints").fetchall()
    assert (3,) in checkpoints


def test_data_and_model_are_refused_in_a_sentence_and_nothing_changes(classroom, tiny, connection):
    with classroom.working(1):
        classroom.train(tiny, until=1)
    before = trainings.get(connection, "test")
    with pytest.raises(TrainingError, match="generator_width can't change once a training has begun"):
        control.change(connection, "test", {"generator_width": 8}, "grace")
    with pytest.raises(PlanError, match="quorum"):
        control.change(connection, "test", {"quorum": 1}, "grace")
    assert trainings.get(connection, "test") == before


@pytest.mark.slow
def test_starting_again_with_the_old_parameters_does_not_undo_a_change(classroom, tiny, connection):
    """Prefect repeats a run with the parameters it had; they are no news."""
    plan = tiny.changed(iterations=4)
    with classroom.working(1):
        classroom.train(plan, until=1)
        control.change(connection, "test", {"checkpoint_interval": 3}, "grace")
        classroom.train(plan)
        assert trainings.get(connection, "test").plan["checkpoint_interval"] == 3
        classroom.train(plan.changed(iterations=5))
    plan_now = trainings.get(connection, "test").plan
    assert (plan_now["checkpoint_interval"], plan_now["iterations"]) == (3, 5)


# Numerical accidents


def test_an_exploding_contribution_is_refused_and_its_unit_done_by_someone_else(
    classroom, tiny, digits, monkeypatch, connection
):
    from gan_core.worker import shift as shifts

    plan, real, spoiled = tiny.changed(iterations=6), shifts.contribute, []

    def sometimes_huge(plan, networks, images, units, *rest):
        vectors, measures = real(plan, networks, images, units, *rest)
        if not spoiled and trainings.get(connection, "test").iteration == 4:
            spoiled.append(1)
            vectors.generator.mul_(1e6)
        return vectors, measures

    monkeypatch.setattr(shifts, "contribute", sometimes_huge)
    with classroom.working(1):
        trained = classroom.train(plan)
    assert spoiled
    assert same_bits(trained.state, train_local(plan, digits))
    (told,) = sentences(connection, EventKind.REFUSED)
    assert "more than 100 times the usual" in told


@pytest.mark.parametrize("credit_late", [True, False])
def test_when_everybodys_contributions_explode_the_step_is_undone_and_nobody_is_blamed(
    classroom, tiny, monkeypatch, connection, credit_late
):
    """It is the training that exploded: five refused contributions would have suspended each honest student."""
    from gan_core.worker import shift as shifts

    plan = tiny.changed(iterations=6, images_per_unit=8, quorum=96, credit_late=credit_late)
    real = shifts.contribute

    def huge_in_the_fourth(*arguments):
        vectors, measures = real(*arguments)
        if trainings.get(connection, "test").iteration == 4:
            vectors.generator.mul_(1e6)
        return vectors, measures

    monkeypatch.setattr(shifts, "contribute", huge_in_the_fourth)
    with classroom.working(2):
        trained = classroom.train(plan)
    assert trained.state.iteration == 6
    assert connection.execute("SELECT suspended FROM classgan.students").fetchall() == [("",), ("",)]
    assert not sentences(connection, EventKind.REFUSED)
    (told,) = sentences(connection, EventKind.ROLLED_BACK)
    assert re.search(r"of ([12]) of \1 students? exploded, so the training did; .* more than 100 times the usual", told)
    assert connection.execute("SELECT images FROM classgan.iterations WHERE number = 4").fetchone() == (0,)
    assert connection.execute("SELECT sum(images) FROM classgan.ledger").fetchone() == (6 * 96,)


def spoil_steps(monkeypatch, iterations: set[int]) -> None:
    """Let these iterations' updates end in infinity."""
    real = coordinators.advance

    def spoiled(plan, state, *rest):
        number = state.iteration
        real(plan, state, *rest)
        if number in iterations:
            state.weights.generator[0] = torch.inf

    monkeypatch.setattr(coordinators, "advance", spoiled)


def test_a_step_to_infinity_is_undone_once(classroom, tiny, connection, monkeypatch):
    """The weights before it stay, other images come next, and whoever computed keeps the credit."""
    spoil_steps(monkeypatch, {2})
    plan = tiny.changed(iterations=5)
    with classroom.working(2):
        trained = classroom.train(plan)
    assert trained.state.iteration == 5
    assert torch.isfinite(trained.state.weights.generator).all()
    assert trained.state.images == 4 * 48
    payloads = connection.execute("SELECT images FROM classgan.iterations ORDER BY number").fetchall()
    assert payloads == [(48,), (48,), (0,), (48,), (48,)]
    (told,) = sentences(connection, EventKind.ROLLED_BACK)
    assert told.startswith("Iteration 2 was undone, the weights before it stay")
    assert connection.execute("SELECT sum(images) FROM classgan.ledger").fetchone() == (5 * 48,)


@pytest.mark.slow
def test_a_second_step_to_infinity_pauses_with_advice_and_a_change_helps(classroom, tiny, connection, monkeypatch):
    spoil_steps(monkeypatch, {2, 3})
    plan = tiny.changed(iterations=5)
    with classroom.working(2):
        with pytest.raises(Finished, match="paused"):
            classroom.train(plan)
        row = trainings.get(connection, "test")
        assert row.state is TrainingState.PAUSED
        assert "for the second time" in row.message
        assert "classgan change test --set learning_rate_g=" in row.message
        control.change(connection, "test", {"learning_rate_g": 1e-4}, "grace")
        trained = classroom.train(plan)
    assert trained.state.iteration == 5
    assert trainings.get(connection, "test").state is TrainingState.SUCCEEDED


@pytest.mark.slow
def test_a_class_whose_every_number_is_spoiled_pauses_instead_of_standing_still(
    classroom, tiny, connection, monkeypatch
):
    from gan_core.worker import shift as shifts

    real = shifts.contribute

    def spoiled(*arguments):
        vectors, measures = real(*arguments)
        vectors.discriminator[0] = torch.nan
        return vectors, measures

    monkeypatch.setattr(shifts, "contribute", spoiled)
    with classroom.working(2), pytest.raises(Finished, match="paused after iteration 2"):
        classroom.train(tiny)
    assert "no contribution to this iteration was usable" in trainings.get(connection, "test").message
