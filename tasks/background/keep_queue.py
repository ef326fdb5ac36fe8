"""Keep the queue moving: look every few seconds, and ask Prefect for the coordinators whose turn has come."""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectException
from prefect.states import Crashed

from gan_core.settings import settings
from tasks.background.shifts import impatient_client, online_workers
from tasks.background.supply_shifts import top_up

if TYPE_CHECKING:
    from psycopg import Connection

    from gan_core.scheduler.survey import Call

log = logging.getLogger("classgan.queue")

SECONDS = 2.0  # between looks
HEARD = 5  # looks between two at the workers that Prefect hears of
LOST = 120.0  # seconds without a heartbeat or a new state after which a run of `train` is over, whatever Prefect says
TRAIN = "train/train"

IsGone = Callable[[FlowRun], bool]


@contextmanager
def kept_queue(
    url: str,
    reaching: Callable[[], AbstractContextManager[None]] = nullcontext,
    is_gone: IsGone = lambda run: False,
) -> Generator[None]:
    """While this holds, the queue moves. Whoever else does the same takes turns with it, and takes over when it ends.

    Args:
        url: of the database, as its owner.
        reaching: makes Prefect's client speak to the right server, where its settings don't say so; held by the thread.
        is_gone: whether a run's process is; where that is known, a dead coordinator is followed sooner.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_keep, args=(url, reaching, is_gone, ended), name="queue", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SECONDS)  # it may be waiting for a server that is away, and has nothing to lose


def _keep(
    url: str, reaching: Callable[[], AbstractContextManager[None]], is_gone: IsGone, ended: threading.Event
) -> None:
    from gan_core.errors import GanError
    from gan_core.store.engine import Link
    from gan_core.store.scheduler import placements

    complained, looks = False, 0
    with reaching(), Link(url, should_stop=ended.is_set) as link, impatient_client() as client:
        while not ended.wait(SECONDS):
            try:
                link.call(lambda c: advance(c, client, is_gone))
                if looks % HEARD == 0:
                    names = [worker.name for worker in online_workers(client)]
                    link.call(lambda c, names=names: placements.heard(c, names))
                complained, looks = False, looks + 1
            except GanError as exc:
                log.warning("The queue could not read trainings and machines: %s", exc)
            except Exception as exc:  # noqa: BLE001  whatever it is, the next look may go better
                if not complained:
                    away = isinstance(exc, httpx.HTTPError | PrefectException)
                    log.warning(
                        "%s, so the queue starts nothing for now: %r",
                        "Prefect does not answer" if away else "A pass of the queue failed",
                        exc,
                    )
                    complained = True


def advance(connection: "Connection", client: SyncPrefectClient, is_gone: IsGone) -> None:
    """One look, and what follows from it."""
    from gan_core.scheduler.survey import Rules, look
    from gan_core.store.scheduler import submissions

    turn = look(connection, Rules.of(settings()))
    try:
        for call in turn.calls:
            _start(connection, client, call, is_gone)
    except (httpx.HTTPError, PrefectException):
        submissions.call_again(connection, [call.training_id for call in turn.calls])
        raise
    if turn.needs_shifts:  # machines are seen only while a shift runs, and nobody else asks for one
        top_up(client)


def _start(connection: "Connection", client: SyncPrefectClient, call: "Call", is_gone: IsGone) -> None:
    """One run of `train`, however often it is asked for; another one if that has ended."""
    from gan_core.coordinator.leadership import SILENT
    from gan_core.store.scheduler import submissions

    deployment, number = client.read_deployment_by_name(TRAIN).id, call.number
    while True:
        run = client.create_flow_run_from_deployment(
            deployment,
            name=f"train {call.name}",  # as the flow calls it once it begins
            parameters={"name": call.name, "plan": call.plan},
            idempotency_key=f"queue-{call.name}-{call.training_id}-{number}",
        )
        if run.state is None or run.state.is_scheduled():
            return
        if not run.state.is_final():
            silent = min(call.silent, (datetime.now(UTC) - run.state.timestamp).total_seconds())
            if silent < SILENT or (silent < LOST and not is_gone(run)):
                return
            client.set_flow_run_state(run.id, Crashed(message="Its process is gone."), force=True)
        number = submissions.next_call(connection, call.training_id, number)
