"""Show shifts whose machine vanished as crashed in Prefect, judged by our own heartbeats: Prefect has none."""

import logging
from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed

from gan_core.settings import settings
from tasks.background.shifts import OF, SHIFT, runs_of, runs_of_pods, runs_of_shifts

log = logging.getLogger("classgan.housekeeping")

VANISHED = 180.0  # seconds of silence; heartbeats come every five


def vanished_shifts(client: SyncPrefectClient) -> set[UUID]:
    """Runs that Prefect shows as taken or running although nothing was heard of their machine for VANISHED seconds.

    Right after a restart of the database nobody is suspected: everybody was silent while it was away.
    """
    from gan_core.store.coordinator import unit_queue
    from gan_core.store.engine import connect

    with connect(settings().database_url) as connection:
        silent, up = unit_queue.silent_seconds(connection), unit_queue.up_seconds(connection)
    if up < VANISHED:
        return set()
    now = datetime.now(UTC)
    return {
        run.id
        for run in (
            *runs_of_shifts(client, StateType.PENDING, StateType.RUNNING),
            *runs_of_pods(client, StateType.RUNNING),  # one that is pending may wait for a node for hours
        )
        # A run that isn't in the table hasn't come to it yet, or its machine started anew: its own age tells.
        if min(age := (now - _begun(run, now)).total_seconds(), silent.get(run.id, age)) > VANISHED
    }


def _begun(run: FlowRun, otherwise: datetime) -> datetime:
    """When it began to run; when it was taken, if it hasn't begun."""
    return run.start_time or (run.state.timestamp if run.state else otherwise)


def tell_lost(client: SyncPrefectClient, training: str, since: datetime) -> None:
    """Write into a training's history which shifts have crashed since then, as their workers or `crash` said."""
    from gan_core.store.coordinator import events
    from gan_core.store.engine import connect

    lost = [r.name.removeprefix(OF) for r in runs_of(client, SHIFT, StateType.CRASHED, ended_after=since)]
    if lost:
        with connect(settings().database_url) as connection:
            events.note_lost_shifts(connection, training, lost)


def crash(client: SyncPrefectClient, runs: Collection[UUID]) -> None:
    """Show these runs as crashed; what they did stays credited, what they held went to others long ago."""
    for run in runs:
        message = f"Nothing was heard of this machine for {VANISHED / 60:.0f} minutes. Its units went to others."
        client.set_flow_run_state(run, Crashed(message=message), force=True)
        log.warning("Run %s is shown as crashed: %s", run, message)
