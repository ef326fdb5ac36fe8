"""What Prefect shows of shifts that nobody works: their names say so. Prefect's client is played."""

import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import uuid4

import pytest
from crowd import fill
from prefect.client.schemas.objects import StateType

from flows import housekeeping
from gan_core.settings import settings
from gan_core.store.coordinator import events
from gan_core.units import EventKind
from tasks.background import supply_shifts
from tasks.background.crash_vanished import tell_lost
from tasks.background.supply_shifts import Cluster, top_up


class PlayedPrefect:
    """A class with three machines online; remembers the runs that it is asked for."""

    def __init__(self) -> None:
        self.runs: dict[object, SimpleNamespace] = {}

    def read_workers_for_work_pool(self, pool: str, **asked: object) -> list[str]:
        return ["ada", "grace", "alan"]

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id=uuid4())

    def create_flow_run_from_deployment(self, deployment: object, *, name: str = "polar-raccoon") -> None:
        run = SimpleNamespace(id=uuid4(), name=name, state_type=StateType.SCHEDULED)
        self.runs[run.id] = run

    def request(self, method: str, path: str, *, json: list[dict[str, str]]) -> None:
        assert path.endswith("/create_flow_run/bulk")
        for wanted in json:
            self.create_flow_run_from_deployment(None, name=wanted["name"])

    def count_flow_runs(self, **asked) -> int:
        return len(self.read_flow_runs(**asked))

    def read_flow_runs(self, *, flow_run_filter, **asked: object) -> list[SimpleNamespace]:
        return [run for run in self.runs.values() if run.state_type in flow_run_filter.state.type.any_]

    def set_flow_run_state(self, run: object, state) -> None:
        self.runs[run].state_type = state.type

    def update_flow_run(self, run: object, *, name: str) -> None:
        self.runs[run].name = name


def test_a_shift_that_was_killed_is_told_of_in_the_history_of_whom_it_worked_for(
    connection, database, monkeypatch, tiny
):
    """Also one whose lease had not run out, or that held nothing at the time."""
    monkeypatch.setenv("CLASSGAN_DATABASE_URL", database)
    settings.cache_clear()
    fill(connection, 2, 3, tiny)  # a training in which both machines had units
    ((name, worker),) = connection.execute(
        "SELECT t.name, w.name FROM classgan.trainings AS t, classgan.workers AS w ORDER BY t.id, w.id LIMIT 1"
    ).fetchall()
    played = PlayedPrefect()
    crashed = SimpleNamespace(id=uuid4(), name=f"shift of {worker}", state_type=StateType.CRASHED)
    played.runs = {1: crashed, 2: SimpleNamespace(id=uuid4(), name="shift of nobody", state_type=StateType.CRASHED)}
    tell_lost(played, name, datetime.now(UTC))
    told = [e for e in events.latest(connection, name) if "ended without a word: it was killed" in e.text]
    assert len(told) == 1
    assert told[0].kind is EventKind.SILENT


@pytest.fixture
def prefect(monkeypatch) -> PlayedPrefect:
    """The played Prefect, also for whoever asks for a client."""
    played = PlayedPrefect()
    monkeypatch.setattr(supply_shifts, "impatient_client", lambda: nullcontext(played))
    monkeypatch.setattr(supply_shifts, "vanished_shifts", lambda client: set())
    return played


def names(prefect: PlayedPrefect) -> set[str]:
    return {run.name for run in prefect.runs.values()}


def test_a_shift_that_waits_for_a_machine_is_called_so(prefect):
    assert top_up(prefect) == 3
    assert names(prefect) == {"shift (waiting)"}


def test_a_shift_that_nobody_took_is_not_called_waiting_any_more(prefect):
    ended = threading.Event()
    ended.set()  # it looks once, then tidies up
    supply_shifts._supply(ended, Cluster("digits", lambda: 0))
    assert len(prefect.runs) == 3
    assert {run.state_type for run in prefect.runs.values()} == {StateType.CANCELLED}
    assert names(prefect) == {"shift (not needed)"}


def test_housekeeping_that_waits_for_its_time_is_called_so(prefect):
    """Prefect itself makes the runs of a schedule, and names them at random."""
    for state in (StateType.SCHEDULED, StateType.SCHEDULED, StateType.COMPLETED):
        prefect.create_flow_run_from_deployment(None)
        list(prefect.runs.values())[-1].state_type = state
    housekeeping.name_waiting(prefect)
    assert [run.name for run in prefect.runs.values()] == [housekeeping.WAITING] * 2 + ["polar-raccoon"]
