"""Keep the queue moving: look every few seconds, and ask Prefect for the coordinators whose turn has come."""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException
from prefect.states import Crashed

from gan_core.settings import settings
from tasks.background.shifts import online_workers
from tasks.background.supply_shifts import top_up

if TYPE_CHECKING:
    from psycopg import Connection

    from gan_core.scheduler.survey import Call

log = logging.getLogger("classgan.queue")

SECONDS = 2.0  # between looks
HEARD = 5  # looks between two at the workers that Prefect hears of
TRAIN = "train/train"


@contextmanager
def kept_queue(url: str, reaching: Callable[[], AbstractContextManager[None]] = nullcontext) -> Generator[None]:
    """While this holds, the queue moves. Whoever else does the same takes turns with it, and takes over when it ends.

    Args:
        url: of the database, as its owner.
        reaching: makes Prefect's client speak to the right server, where its settings don't say so; held by the thread.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_keep, args=(url, reaching, ended), name="queue", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SECONDS)  # it may be waiting for a server that is away, and has nothing to lose


def _keep(url: str, reaching: Callable[[], AbstractContextManager[None]], ended: threading.Event) -> None:
    from gan_core.errors import GanError
    from gan_core.store.engine import Link
    from gan_core.store.scheduler import placements

    complained, looks = False, 0
    with reaching(), Link(url, should_stop=ended.is_set) as link, get_client(sync_client=True) as client:
        while not ended.wait(SECONDS):
            try:
                link.call(lambda c: advance(c, client))
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


def advance(connection: "Connection", client: SyncPrefectClient) -> None:
    """One look, and what follows from it."""
    from gan_core.scheduler.survey import Rules, look

    turn = look(connection, Rules.of(settings()))
    for call in turn.calls:
        _start(connection, client, call)
    if turn.needs_shifts:  # machines are seen only while a shift runs, and nobody else asks for one
        top_up(client)


def _start(connection: "Connection", client: SyncPrefectClient, call: "Call") -> None:
    """One run of `train`, however often it is asked for; another one if that has ended."""
    from gan_core.store.scheduler import submissions

    deployment, number = client.read_deployment_by_name(TRAIN).id, call.number
    while True:
        run = client.create_flow_run_from_deployment(
            deployment,
            name=f"train {call.name}",  # as the flow calls it once it begins
            parameters={"name": call.name, "plan": call.plan},
            idempotency_key=f"queue-{call.name}-{call.training_id}-{number}",
        )
        if run.state is None or not run.state.is_final():
            if not (call.is_lost or _never_begins(run.state)) or number != call.number:
                return
            client.set_flow_run_state(run.id, Crashed(message="Nothing was heard of its process any more."), force=True)
        number = submissions.next_call(connection, call.training_id, number)


def _never_begins(state: State | None) -> bool:
    """The instructor's worker has taken it, and then died, or waits for a busy Prefect longer with each refusal."""
    from gan_core.scheduler.survey import LOST

    return state is not None and state.is_pending() and (datetime.now(UTC) - state.timestamp).total_seconds() > LOST
