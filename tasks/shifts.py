"""The shifts that Prefect knows of."""

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType

POOL = "students"
SHIFT = "gradient-compute/shift"


def runs_of_shifts(client: SyncPrefectClient, *states: StateType) -> list[FlowRun]:
    """The shifts in one of these states."""
    deployment = client.read_deployment_by_name(SHIFT).id
    return client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])),
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states)))),
    )
