"""Started again, a training continues where it stood: with the weights that an unbroken run would have had."""

from contextlib import closing
from io import StringIO

import psycopg
import pytest
from classroom import same_bits
from rich.console import Console

from gan_core.coordinator.checkpoints import Checkpoints, resumed
from gan_core.coordinator.coordinator import Coordinator
from gan_core.errors import TrainingError
from gan_core.networks.models import layout_of
from gan_core.networks.reference import train_local
from gan_core.store.coordinator import trainings
from gan_core.store.engine import Link
from gan_core.units import TrainingState
from tasks.run_log import show_log


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
@pytest.mark.parametrize("stop_at", [1, 2, 3, 5])
def test_a_coordinator_that_dies_between_iterations_is_continued_bit_for_bit(classroom, tiny, digits, kind, stop_at):
    """With checkpoints every 2 iterations: stopped on one, and beyond one."""
    plan = tiny.changed(contribution=kind, iterations=6)
    with classroom.working(2):
        classroom.train(plan, until=stop_at)
        trained = classroom.train(plan)
    assert same_bits(trained.state, train_local(plan, digits))


@pytest.mark.slow
@pytest.mark.parametrize("step", ["after create_units", "after gather", "before publish commits"])
def test_a_coordinator_that_dies_in_the_middle_of_an_iteration_is_continued_bit_for_bit(
    classroom, tiny, digits, step, monkeypatch
):
    plan = tiny.changed(iterations=4)
    with classroom.working(2):
        with Coordinator(classroom.url, "test", plan, classroom.cache) as doomed:
            for _ in range(2):
                doomed.create_units()
                doomed.publish(doomed.gather())
            doomed.create_units()
            if step != "after create_units":
                gathered = doomed.gather()
            if step == "before publish commits":
                monkeypatch.setattr(trainings, "publish", _fails)
                with pytest.raises(ZeroDivisionError):
                    doomed.publish(gathered)
                monkeypatch.undo()
        trained = classroom.train(plan)
    assert same_bits(trained.state, train_local(plan, digits))


def _fails(*args):
    raise ZeroDivisionError


@pytest.mark.slow
def test_a_checkpoint_that_arrives_while_its_iterations_are_repeated_is_taken(classroom, tiny, digits):
    """It was on its way when its coordinator fell silent, and the contributions that it holds go with its arrival."""
    plan = tiny.changed(iterations=6, checkpoint_interval=50)
    with classroom.working(2):
        number = classroom.train(plan, until=3).training_id
    late = train_local(plan.changed(iterations=2), digits)
    writer, link = Checkpoints(classroom.url, number), Link(classroom.url)
    with closing(writer), closing(link):
        state = resumed(link, number, 3, plan, layout_of(plan), on_step=lambda: writer.write(late))
    assert same_bits(state, train_local(plan.changed(iterations=3), digits))


@pytest.mark.slow
def test_a_finished_training_given_more_iterations_goes_on(classroom, tiny, digits):
    with classroom.working(2):
        classroom.train(tiny.changed(iterations=2))
        trained = classroom.train(tiny.changed(iterations=5))
    assert same_bits(trained.state, train_local(tiny.changed(iterations=5), digits))


@pytest.mark.slow
def test_another_plan_under_the_same_name_is_refused_in_a_sentence(classroom, tiny):
    with classroom.working(1):
        classroom.train(tiny)
    with pytest.raises(TrainingError, match=r"seed was 0, now 1.*another name"):
        classroom.train(tiny.changed(seed=1))


def test_a_training_that_began_with_other_images_is_refused(classroom, tiny):
    with classroom.working(1):
        classroom.train(tiny, until=1)
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        connection.execute("UPDATE classgan.trainings SET data_fingerprint = 'feedfeedfeedfeed'")
    with pytest.raises(TrainingError, match="began with other images"):
        classroom.train(tiny)


def test_a_machine_with_other_images_gives_its_units_back_and_says_why(classroom, tiny, monkeypatch):
    from gan_core.worker import shift as shift_module

    monkeypatch.setattr(shift_module, "PAUSE_AFTER_FAULT", 0.01)
    with Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
        training.create_units()
        with psycopg.connect(classroom.url, autocommit=True) as connection:
            connection.execute("UPDATE classgan.trainings SET data_fingerprint = 'feedfeedfeedfeed'")
            told = "SELECT message <> '' FROM classgan.workers"
            classroom.shift("odd", should_stop=lambda: (connection.execute(told).fetchone() or [False])[0]).run()
            assert connection.execute("SELECT count(*) FROM classgan.units WHERE state = 'open'").fetchone() == (3,)
            message = connection.execute("SELECT message FROM classgan.workers").fetchone()[0]
    assert "feedfeedfeedfeed" in message


@pytest.mark.slow
def test_checkpoints_bound_what_is_stored(classroom, tiny):
    """Gradients go once a checkpoint holds their effect; weights and checkpoints keep the last few. The ledger stays."""
    with classroom.working(2):
        training = classroom.train(tiny.changed(iterations=9))
    with psycopg.connect(classroom.url, autocommit=True) as connection:

        def rows(table):
            return connection.execute(f"SELECT count(*) FROM classgan.{table}").fetchone()[0]

        assert rows("gradients") == 0
        waiting = rows("checks WHERE payload IS NOT NULL")
        assert 16 <= waiting <= 18  # two machines may submit at the same moment
        assert rows("weights") <= trainings.KEPT_WEIGHTS + waiting
        assert classroom.check_all(training.training_id) == waiting
        assert rows("checks WHERE payload IS NOT NULL") == 0
        assert rows("weights") == trainings.KEPT_WEIGHTS
        assert rows("checkpoints") <= trainings.KEPT_CHECKPOINTS + trainings.MILESTONES
        assert rows("contributions") == 27
        assert trainings.get(connection, "test").state is TrainingState.SUCCEEDED


@pytest.mark.slow
def test_units_and_leases_of_long_ago_go_and_the_ledger_stays(classroom, tiny, monkeypatch):
    monkeypatch.setattr(trainings, "KEPT_ITERATIONS", 5)
    with classroom.working(2):
        classroom.train(tiny.changed(iterations=20))
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        for table in ("units", "leases"):
            oldest, count = connection.execute(f"SELECT min(iteration), count(*) FROM classgan.{table}").fetchone()
            assert oldest == 15, table
            assert count == 15, table
        assert connection.execute("SELECT count(*) FROM classgan.contributions").fetchone() == (60,)
        assert connection.execute("SELECT sum(images) FROM classgan.ledger").fetchone() == (20 * 48,)


def test_a_run_outlives_the_worker_that_read_its_output(monkeypatch):
    class ClosedPipe(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(Console, "on_broken_pipe", Console.on_broken_pipe)  # as it was, afterwards
    show_log()
    console = Console(file=ClosedPipe())
    for _ in range(2):
        console.print("Task run 'aggregate it 7' - Finished in state Completed()")
