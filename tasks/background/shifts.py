"""Asks Prefect for its runs: shifts, and those of other deployments."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkerFilter,
    WorkerFilterStatus,
)
from prefect.client.schemas.objects import FlowRun, StateType, Worker, WorkerStatus
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

POOL = "students"
SHIFT = "gradient-compute/shift"
BULK = 100  # runs that Prefect's server makes at once
OF = "shift of "  # a run is called so, with its worker's name

# The same flow in pods; `classgan kubernetes pool` makes pool and deployment.
CLUSTER_POOL = "kubernetes"
CLUSTER_SHIFT = "gradient-compute/shift-kubernetes"


@contextmanager
def impatient_client() -> Generator[SyncPrefectClient]:
    """For who looks every few seconds anyway: by itself, Prefect's client asks a server that is away after 2, 4, 8 … seconds,
    and so finds it up to a minute after it is back.
    """
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 2}), get_client(sync_client=True) as client:
        yield client


def online_workers(client: SyncPrefectClient) -> list[Worker]:
    """The students' workers of which Prefect hears, with a shift or without."""
    online = WorkerFilter(status=WorkerFilterStatus(any_=[WorkerStatus.ONLINE]))
    return client.read_workers_for_work_pool(POOL, worker_filter=online)


def runs_of(
    client: SyncPrefectClient, name: str, *states: StateType, ended_after: datetime | None = None
) -> list[FlowRun]:
    """The runs of this deployment, FLOW/NAME, in one of these states."""
    return client.read_flow_runs(**_which(client, name, states, ended_after))


def _which(
    client: SyncPrefectClient, name: str, states: Sequence[StateType], ended_after: datetime | None = None
) -> dict[str, Any]:
    deployment = client.read_deployment_by_name(name).id
    which = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states))))
    if ended_after is not None:
        which.end_time = FlowRunFilterEndTime(after_=ended_after)
    of = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
    return {"deployment_filter": of, "flow_run_filter": which}


def runs_of_shifts(client: SyncPrefectClient, *states: StateType) -> list[FlowRun]:
    """The shifts of students' machines in one of these states."""
    return runs_of(client, SHIFT, *states)


def count_shifts(client: SyncPrefectClient, *states: StateType) -> int:
    """How many of them there are."""
    return client.count_flow_runs(**_which(client, SHIFT, states))


def create_shifts(client: SyncPrefectClient, number: int, name: str) -> None:
    """So many that wait for a machine. Prefect's client knows no way to make several at once, its server does."""
    if number:
        path = f"/deployments/{client.read_deployment_by_name(SHIFT).id}/create_flow_run/bulk"
        for made in range(0, number, BULK):
            client.request("POST", path, json=[{"name": name}] * min(BULK, number - made))  # ty: ignore[invalid-argument-type]


def runs_of_pods(client: SyncPrefectClient, *states: StateType) -> list[FlowRun]:
    """The same of shifts in the cluster; none if the class has no pool of pods."""
    try:
        return runs_of(client, CLUSTER_SHIFT, *states)
    except ObjectNotFound:
        return []
