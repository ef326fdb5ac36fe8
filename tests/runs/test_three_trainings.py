"""Three trainings and room for one: they take turns, and each ends with the weights it would have had alone."""

import threading
from contextlib import contextmanager, suppress

import psycopg
import pytest
from classroom import same_bits
from poll import wait_until

from gan_core.coordinator.coordinator import Coordinator
from gan_core.errors import Finished
from gan_core.networks.reference import train_local
from gan_core.plan import checked_plan
from gan_core.scheduler.demand import Demand
from gan_core.scheduler.survey import Rules, look, move, survey
from gan_core.store.coordinator import trainings
from gan_core.store.scheduler import submissions
from gan_core.units import TrainingState
from tasks import control

RULES = Rules(max_running=1)


@pytest.fixture
def connection(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


@contextmanager
def queue_kept(classroom, ended_states):
    """Looks, and a thread for each coordinator that is called: what Prefect's worker does."""
    over, leads = threading.Event(), []

    def lead(call) -> None:
        plan = checked_plan(call.plan)
        with suppress(Finished), Coordinator(classroom.url, call.name, plan, classroom.cache) as training:
            while not training.is_done:
                training.stop_if_asked()
                training.create_units()
                training.publish(training.gather())
            training.finish()
            ended_states[call.name] = training.state

    def keep() -> None:
        with psycopg.connect(classroom.url, autocommit=True) as mine:
            while not over.wait(0.1):
                for call in look(mine, RULES).calls:
                    leads.append(threading.Thread(target=lead, args=(call,)))
                    leads[-1].start()

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        for thread in leads:
            thread.join()


@pytest.mark.slow
def test_two_wait_while_one_runs_and_each_has_the_weights_of_its_solo_run(classroom, tiny, digits, connection):
    def submit(name, seed, iterations=4, **demand) -> None:
        plan = tiny.changed(iterations=iterations, seed=seed)
        asked = Demand(**demand).model_dump()
        submissions.submit(connection, name, plan.model_dump(mode="json"), asked, "ada")

    def state(name) -> TrainingState:
        return trainings.get(connection, name).state

    def reason(name) -> str:
        seen = survey(connection, RULES)
        return seen.reason(trainings.get(connection, name).id)

    done: dict = {}
    with classroom.working(2), queue_kept(classroom, done):
        submit("first", 1, iterations=100_000)
        wait_until(lambda: trainings.get(connection, "first").iteration >= 2, 60, "the first one's iterations")
        submit("second", 2)
        submit("third", 3)
        submit("gpu", 4, gpus=1, memory_mb=8_192)
        wait_until(lambda: "no machine of this class has a GPU" in trainings.get(connection, "gpu").message, 20)
        wait_until(lambda: "one training runs at a time" in trainings.get(connection, "third").message, 20)
        waiting = survey(connection, RULES).outlooks.values()
        assert [o.position for o in waiting] == [1, 2, 3]
        move(connection, "third", "", RULES)
        control.cancel(connection, "gpu", "a test")
        before = trainings.get(connection, "first").iteration
        submissions.set_priority(connection, trainings.get(connection, "second").id, 5)
        wait_until(
            lambda: state("second") is TrainingState.SUCCEEDED, 60, "the end of the one with the higher priority"
        )
        assert before <= trainings.get(connection, "first").iteration < 100_000
        wait_until(
            lambda: state("third") is TrainingState.SUCCEEDED, 60, "the end of the one that was moved to the top"
        )
        assert state("first") is not TrainingState.SUCCEEDED
        control.change(connection, "first", {"iterations": trainings.get(connection, "first").iteration + 3}, "a test")
        wait_until(lambda: state("first") is TrainingState.SUCCEEDED, 90, "the end of the first one")
    assert state("gpu") is TrainingState.CANCELLED
    for name, seed in (("first", 1), ("second", 2), ("third", 3)):
        plan = tiny.changed(iterations=trainings.get(connection, name).iteration, seed=seed)
        assert same_bits(done[name], train_local(plan, digits)), name
    reasons = connection.execute(
        "SELECT DISTINCT t.name FROM classgan.placements AS p JOIN classgan.trainings AS t ON t.id = p.training_id"
    ).fetchall()
    assert sorted(reasons) == [("first",), ("second",), ("third",)]
