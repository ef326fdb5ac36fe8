"""What the queue asks of Prefect: one run for each call, another one only when that has ended. Prefect's client is played."""

from datetime import UTC, datetime, timedelta
from math import inf
from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest
from prefect.client.schemas.objects import State, StateType

from gan_core.coordinator.leadership import SILENT
from gan_core.errors import TrainingError
from gan_core.scheduler.demand import Demand
from gan_core.scheduler.survey import Call, Rules
from gan_core.settings import settings
from gan_core.store import student
from gan_core.store.coordinator import trainings
from gan_core.store.migrate import add_student
from gan_core.store.scheduler import submissions
from tasks.background import keep_queue
from tasks.background.keep_queue import LOST, _start, advance
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

    def show(self, kind: StateType, seconds: float = 0) -> None:
        """The newest run as it is since so many seconds."""
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        list(self.runs.values())[-1].state = State(type=kind, timestamp=since)

    @property
    def states(self) -> list[StateType]:
        return [run.state.type for run in self.runs.values()]


@pytest.fixture
def started(connection, tiny):
    """A function that calls a training's coordinator; with the played Prefect and the training's id."""
    prefect = PlayedPrefect()
    submissions.submit(connection, "test", tiny.model_dump(mode="json"), Demand().model_dump(), "ada")
    number = trainings.get(connection, "test").id

    def start(silent: float = inf, is_gone: bool = False) -> int:
        ((calls,),) = connection.execute("SELECT calls FROM classgan.trainings").fetchall()
        call = Call(training_id=number, name="test", plan={"seed": 1}, number=calls, silent=silent)
        _start(connection, prefect, call, lambda run: is_gone)
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
    started.prefect.show(kind)
    assert started() == 2
    assert started() == 2


@pytest.mark.parametrize("kind", [StateType.RUNNING, StateType.PENDING])
def test_a_run_whose_process_is_gone_is_shown_as_crashed_and_followed_by_one(started, kind):
    """Prefect would show it as alive for ever if the instructor's worker died with it, or right after it had taken it."""
    started()
    started.prefect.show(kind, seconds=SILENT + 1)
    assert started(silent=1, is_gone=True) == 1  # another coordinator lives
    assert started() == 1  # it may run on another machine
    assert started(is_gone=True) == 2
    assert started.prefect.states == [StateType.CRASHED, StateType.SCHEDULED]
    started.prefect.show(StateType.PENDING)
    assert started(is_gone=True) == 2, "it has no process yet"


@pytest.mark.parametrize("kind", [StateType.RUNNING, StateType.PENDING])
def test_a_run_of_which_nothing_is_heard_for_two_minutes_is_followed_by_one(started, kind):
    """Its process was on a machine that is gone; or Prefect was so busy that it waits for minutes before it asks again."""
    started()
    started.prefect.show(kind, seconds=LOST + 1)
    assert started(silent=LOST - 1) == 1
    assert started() == 2
    assert started.prefect.states == [StateType.CRASHED, StateType.SCHEDULED]
    started.prefect.show(StateType.RUNNING)
    assert started() == 2, "the first heartbeat of the new one takes seconds"


def test_a_run_that_no_worker_has_taken_waits(started):
    started()
    started.prefect.show(StateType.SCHEDULED, seconds=2 * LOST)
    assert started(is_gone=True) == 1


def test_a_call_that_prefect_did_not_hear_is_made_again_at_the_next_look(connection, started, monkeypatch):
    """It was being restarted, or so busy that it refused."""
    monkeypatch.setattr(keep_queue, "top_up", lambda client: None)
    add_student(connection, "instructor")
    student.register(connection, "desk", uuid4(), "cpu", {})

    def is_away(*_, **__) -> None:
        raise httpx.ConnectError("Connection refused")

    with monkeypatch.context() as away:
        away.setattr(started.prefect, "create_flow_run_from_deployment", is_away)
        with pytest.raises(httpx.ConnectError):
            advance(connection, started.prefect, lambda run: False)
    advance(connection, started.prefect, lambda run: False)
    assert started.prefect.states == [StateType.SCHEDULED]


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
