"""What the queue asks of Prefect: one run for each call, another one only when that has ended. Prefect's client is played."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import State, StateType

from gan_core.errors import TrainingError
from gan_core.scheduler.demand import Demand
from gan_core.scheduler.survey import LOST, Call, Rules
from gan_core.settings import settings
from gan_core.store.coordinator import trainings
from gan_core.store.scheduler import submissions
from tasks.background.keep_queue import _start
from tasks.enter_queue import enter_queue


class PlayedPrefect:
    """Remembers runs by their key, as Prefect does."""

    def __init__(self) -> None:
        self.runs: dict[str, SimpleNamespace] = {}

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        assert name == "train/train"
        return SimpleNamespace(id=uuid4())

    def create_flow_run_from_deployment(self, deployment, *, name, parameters, idempotency_key) -> SimpleNamespace:
        fresh = SimpleNamespace(id=uuid4(), name=name, parameters=parameters, state=State(type=StateType.SCHEDULED))
        return self.runs.setdefault(idempotency_key, fresh)

    def set_flow_run_state(self, run, state, force) -> None:
        assert force
        next(r for r in self.runs.values() if r.id == run).state = state

    def end(self, kind: StateType) -> None:
        list(self.runs.values())[-1].state = State(type=kind)


@pytest.fixture
def started(connection, tiny):
    """A function that calls a training's coordinator; with the played Prefect and the training's id."""
    prefect = PlayedPrefect()
    submissions.submit(connection, "test", tiny.model_dump(mode="json"), Demand().model_dump(), "ada")
    number = trainings.get(connection, "test").id

    def start(is_lost: bool = False) -> int:
        ((calls,),) = connection.execute("SELECT calls FROM classgan.trainings").fetchall()
        _start(
            connection, prefect, Call(training_id=number, name="test", plan={"seed": 1}, number=calls, is_lost=is_lost)
        )
        return len(prefect.runs)

    start.prefect = prefect
    return start


def test_a_coordinator_that_is_called_twice_is_one_run(started):
    assert started() == 1
    assert started() == 1
    (run,) = started.prefect.runs.values()
    assert run.parameters == {"name": "test", "plan": {"seed": 1}}
    assert run.name == "train test"  # before it begins, too


@pytest.mark.parametrize("kind", [StateType.COMPLETED, StateType.CRASHED, StateType.CANCELLED])
def test_a_run_that_has_ended_is_followed_by_another_one(started, kind):
    started()
    started.prefect.end(kind)
    assert started() == 2
    assert started() == 2


def test_a_run_whose_process_is_gone_for_long_is_shown_as_crashed_and_followed(started):
    """Prefect would show it as running for ever if the instructor's worker died with it."""
    started()
    started.prefect.end(StateType.RUNNING)
    assert started() == 1
    assert started(is_lost=True) == 2
    assert [r.state.type for r in started.prefect.runs.values()] == [StateType.CRASHED, StateType.SCHEDULED]


def test_a_run_that_was_taken_and_never_begins_is_shown_as_crashed_and_followed(started):
    """The worker died in between; or Prefect was so busy that it waits for minutes before it asks again."""
    started()
    started.prefect.end(StateType.PENDING)
    assert started() == 1
    (run,) = started.prefect.runs.values()
    run.state = State(type=StateType.PENDING, timestamp=datetime.now(UTC) - timedelta(seconds=LOST + 1))
    assert started() == 2
    assert [r.state.type for r in started.prefect.runs.values()] == [StateType.CRASHED, StateType.SCHEDULED]


@pytest.fixture
def by_hand(database, tiny, monkeypatch):
    """A function that starts `train` as a person would, with room for one training."""
    monkeypatch.setenv("CLASSGAN_DATABASE_URL", database)
    monkeypatch.setenv("CLASSGAN_MAX_RUNNING", "1")
    settings.cache_clear()
    assert Rules.of(settings()).max_running == 1
    yield lambda name, demand=Demand(): enter_queue(name, tiny, demand)  # noqa: B008  frozen
    settings.cache_clear()


def test_a_start_by_hand_goes_on_at_once_if_there_is_room_and_is_queued_if_not(connection, tiny, by_hand):
    assert by_hand("first") is None
    row = trainings.create(connection, "first", tiny.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 5_000, 100, b"weights")
    assert by_hand("second") == "second is queued: no worker has joined yet: it waits until one joins"
    assert by_hand("first") is None  # it exists: a person wants it to go on
    assert by_hand("second") is None
    assert by_hand("gpu", Demand(gpus=1)).startswith("gpu is queued")
    with pytest.raises(TrainingError, match="'gpu' exists with another demand"):
        by_hand("gpu", Demand(gpus=2))
