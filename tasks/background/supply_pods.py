"""Keep as many shifts running in the class's Kubernetes cluster as a training's plan asks for (`cluster_shifts`)."""

from datetime import UTC, datetime, timedelta
from itertools import count

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Cancelled, Cancelling

from tasks.background.shifts import CLUSTER_SHIFT, runs_of

OPEN = (StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
ENDED_BADLY = (StateType.CRASHED, StateType.FAILED)
# Before a failed pod gets a successor: what is missing is missing a second later, too. And before a rank is used again:
# a pod that is taken back has 90 s to hand its unit in.
PAUSE = timedelta(seconds=120)


def top_up_pods(client: SyncPrefectClient, training: str, wanted: int) -> int:
    """Create the shifts that this training lacks in the cluster, withdraw what it has too many; returns how many are new.

    Each has a rank: the lowest number that no other shift there has, of whatever training. Its machine is called after it, so
    the name is its own while it runs, and names don't run out.

    Raises:
        prefect.exceptions.ObjectNotFound: the class has no pool of pods.
    """
    runs = sorted(runs_of(client, CLUSTER_SHIFT, *OPEN), key=lambda run: (run.created, run.id))
    mine = [run for run in runs if _training(run) == training]
    # Two coordinators may have chosen the same rank in the same moment: the younger run gives way.
    doubles = [run for at, run in enumerate(runs) if run in mine and _rank(run) in map(_rank, runs[:at])]
    kept = [run for run in mine if run not in doubles]
    for run in (*doubles, *kept[wanted:]):
        withdraw(client, run)
    ended_after = datetime.now(UTC) - PAUSE
    ended = runs_of(client, CLUSTER_SHIFT, *ENDED_BADLY, StateType.CANCELLED, ended_after=ended_after)
    taken = {_rank(run) for run in (*runs, *ended)}
    free = (str(rank) for rank in count() if str(rank) not in taken)
    failed = [run for run in ended if _training(run) == training and run.state_type in ENDED_BADLY]
    missing = max(0, wanted - len(kept) - len(failed))
    for _ in range(missing):
        rank = next(free)
        client.create_flow_run_from_deployment(
            client.read_deployment_by_name(CLUSTER_SHIFT).id,
            name=f"{training}-{rank}",
            job_variables={"training": training, "rank": rank},
        )
    return missing


def withdraw(client: SyncPrefectClient, run: FlowRun) -> None:
    """Take a shift back that hasn't begun; `classgan kubernetes worker` deletes its pod. One that runs ends by itself."""
    kind = run.state.type if run.state else StateType.SCHEDULED
    if kind is StateType.SCHEDULED:
        client.set_flow_run_state(run.id, Cancelled(message="No training needs it any more."))
    elif kind is StateType.PENDING:
        client.set_flow_run_state(run.id, Cancelling(message="No training needs it any more."))


def _training(run: FlowRun) -> str:
    return (run.job_variables or {}).get("training", "")


def _rank(run: FlowRun) -> str:
    return (run.job_variables or {}).get("rank", "")
