"""What the service asks of the class's database: the same calls as the commands, after a check of the caller's rights."""

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from psycopg import Connection

from deployments.server.gate.runs import Refused
from deployments.server.service import models
from deployments.server.service.rights import Caller
from gan_core.errors import TrainingError
from gan_core.plan import checked_plan
from gan_core.scheduler.demand import Demand, checked_demand
from gan_core.scheduler.foreign_submissions import from_values
from gan_core.scheduler.survey import Rules, Survey, survey
from gan_core.settings import settings
from gan_core.status.summary import summary
from gan_core.store.engine import connect
from gan_core.store.scheduler import submissions
from gan_core.store.scheduler.submissions import Ticket
from gan_core.store.viewers import ledger, watching
from gan_core.units import TrainingState

THREADS = 8  # requests at the database at once: the class's own work must not wait for them
SURVEY_SECONDS = 1.0  # that a look at the queue is good for: a hundred clients that poll cost no more than one
STATEMENT_SECONDS = 20

T = TypeVar("T")


class Database:
    """The database at `url`, with the instructor's login, for requests that come in an event loop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._threads = anyio.CapacityLimiter(THREADS)
        self._surveyed = float("-inf")
        self._survey: Survey | None = None
        self._lock = threading.Lock()  # submissions come one after the other, so that counting them holds

    async def ask(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, in a thread. Raises what it raises, and StoreUnreachable at once if nobody answers."""

        def asked() -> T:
            with connect(self._url) as connection:
                connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
                return work(connection)

        return await anyio.to_thread.run_sync(asked, limiter=self._threads)

    def survey(self, connection: Connection, fresh: bool = False) -> Survey:
        """The queue as it stood less than a second ago, or as it stands now."""
        known = self._survey
        if known is None or fresh or time.monotonic() - self._surveyed > SURVEY_SECONDS:
            known = self._survey = survey(connection, Rules.of(settings()))
            self._surveyed = time.monotonic()
        return known

    def submit(self, connection: Connection, caller: Caller, body: dict[str, Any], key: str) -> tuple[Ticket, bool]:
        """Take a submission of any shape into the queue; returns it, and whether it was made now."""
        given = from_values(body)
        demand, plan = checked_demand(given.demand), given.plan
        caller.require_submission(connection, plan, demand)
        demand.require_possible(plan)
        values = plan.model_dump(mode="json"), demand.model_dump()
        with self._lock, connection.transaction():
            name, is_new = submissions.submit(connection, given.name, *values, owner=caller.login, key=key or None)
            if is_new:
                caller.require_room(connection)  # it is counted already, and isn't there if this raises
        return caller.ticket(connection, name), is_new

    def go_on(self, connection: Connection, caller: Caller, act: Callable[[], str]) -> str:
        """What `act` says, which puts one of the caller's trainings back into the queue, if there is room for it."""
        with self._lock, connection.transaction():
            said = act()
            caller.require_room(connection)
        return said

    def status(self, connection: Connection, caller: Caller, name: str, fresh: bool = False) -> models.Status:
        """Where this training stands."""
        found = caller.ticket(connection, name)
        seen = self.survey(connection, fresh)
        if caller.is_instructor:
            view = ledger.overview(connection, name)
            assert view is not None
        else:  # names no computer
            view = watching.overview(connection, found.id)
        ahead, plan = seen.outlooks.get(found.id), checked_plan(found.plan)
        waits = found.state is TrainingState.QUEUED
        return models.Status(
            job_id=found.id,
            name=name,
            state=found.state,
            message=seen.reason(found.id) if waits and found.id in seen.entries else summary(view),
            position_in_queue=ahead.position if ahead and waits else None,
            earliest_start=ahead.earliest if ahead and waits else None,
            latest_start=ahead.latest if ahead and waits else None,
            metadata=models.Metadata(
                owner=found.owner,
                plan=plan,
                demand=Demand(**{field: getattr(found, field) for field in Demand.model_fields}),
                data_fingerprint=found.data_fingerprint,
                data_images=found.data_images,
                created_at=found.created_at,
                started_at=found.started_at,
            ),
            metrics=models.Metrics(
                iteration=view.iteration,
                iterations=0 if plan.epochs else plan.iterations,
                images=view.images,
                images_per_second=view.images_per_second,
                workers=sum(p.training == found.id for p in seen.round.placements.values()),
                last=models.Iteration.model_validate(finite(view.last)) if view.last else None,
            ),
        )


def tag_of(status: models.Status) -> str:
    """A weak ETag that changes with whatever matters: not with estimates and speeds, which never stand still."""
    estimates = {"earliest_start": True, "latest_start": True, "metrics": {"images_per_second": True}}
    what = status.model_dump(mode="json", exclude=estimates)
    return f'W/"{hashlib.sha256(repr(what).encode(errors="backslashreplace")).hexdigest()[:20]}"'


def finite(row: ledger.IterationRow) -> dict[str, Any]:
    """An iteration as JSON can hold it: a loss that isn't a number is empty."""
    fields = {name: getattr(row, name) for name in models.Iteration.model_fields}
    return {k: None if isinstance(v, float) and not abs(v) < float("inf") else v for k, v in fields.items()}


def require_failed(ticket: Ticket) -> None:
    """Raises TrainingError if there is nothing to try again."""
    if ticket.state is not TrainingState.FAILED:
        raise TrainingError(f"{ticket.name!r} is {ticket.state}: only a failed training is tried again.")


def require_known(worker: str, count: int, known: list[str]) -> None:
    """Raises Refused (404) if no machine is called so."""
    if not count:
        raise Refused(404, f"There is no worker {worker!r}. Workers here: {', '.join(known) or 'none yet'}.")
