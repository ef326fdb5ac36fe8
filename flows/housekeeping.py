"""Keep database and Prefect tidy."""

import logging

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType

from gan_core.settings import settings
from tasks.background.crash_vanished import crash, vanished_shifts
from tasks.background.shifts import runs_of
from tasks.run_log import show_log

log = logging.getLogger("classgan.housekeeping")


DEPLOYMENT = "housekeeping/housekeeping"
WAITING = "housekeeping (waiting)"  # until it begins: Prefect gives the runs of a schedule random names


def name_waiting(client: SyncPrefectClient) -> None:
    """Give the runs that the schedule has made ahead a name that says what they are."""
    for run in runs_of(client, DEPLOYMENT, StateType.SCHEDULED):
        client.update_flow_run(run.id, name=WAITING)


@flow(
    name="housekeeping",
    flow_run_name="housekeeping",
    persist_result=False,
    description="Frees the units of silent machines, drops tensors that nothing needs any more, and shows runs of vanished machines as crashed.",
)
def housekeeping() -> int:
    """Returns how many leases ran out. Run it as often as you like."""
    from gan_core.store.coordinator import checks, unit_queue
    from gan_core.store.engine import connect

    show_log()
    with connect(settings().database_url) as connection:
        freed = unit_queue.expire_leases(connection)
        dropped = unit_queue.drop_spent_gradients(connection)
        checks.drop_stale(connection)
    with get_client(sync_client=True) as client:
        crash(client, vanished_shifts(client))
        name_waiting(client)
    log.info("%d leases had run out, %d spent gradients dropped", freed, dropped)
    return freed
