"""More machines than Prefect's server shows at once by itself, 200: each finds a shift, and none is made twice."""

from collections.abc import Callable, Iterator

import pytest
from gated import SECRETS, Gate, gate_in
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from tasks.background.shifts import POOL, count_shifts, online_workers, runs_of_shifts
from tasks.background.supply_shifts import WAITING, top_up

MACHINES = 230


@pytest.fixture
def gate(tmp_path_factory: pytest.TempPathFactory, prefects_records: Callable[[], dict[str, str]]) -> Iterator[Gate]:
    with gate_in(tmp_path_factory.mktemp("gate"), prefects_records()) as gate:
        yield gate


@pytest.fixture
def prefect(gate: Gate) -> Iterator[SyncPrefectClient]:
    """As a coordinator asks it."""
    where = {
        PREFECT_API_URL: f"{gate.url}/api",
        PREFECT_API_AUTH_STRING: f"instructor:{SECRETS['instructor']}",
    }
    with temporary_settings(where), get_client(sync_client=True) as client:
        yield client


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_of_230_machines_gets_a_shift(gate, prefect):
    for number in range(MACHINES):
        body = {"name": f"machine {number}", "heartbeat_interval_seconds": 300}
        gate.ask("POST", f"/work_pools/{POOL}/workers/heartbeat", body)
    assert len(online_workers(prefect)) == MACHINES
    assert top_up(prefect) == MACHINES
    waiting = runs_of_shifts(prefect, StateType.SCHEDULED)
    assert [run.name for run in waiting] == [WAITING] * MACHINES
    assert top_up(prefect) == 0
    for run in waiting[:210]:
        gate.ask("POST", f"/flow_runs/{run.id}/set_state", {"state": {"type": "PENDING"}})
    assert count_shifts(prefect, StateType.PENDING) == 210
    assert top_up(prefect) == 0  # twenty are without one, and twenty wait
