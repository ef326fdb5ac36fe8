"""Writes to the queue: submits, moves and calls trainings, always with the instructor's login."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from gan_core.errors import TrainingError
from gan_core.plan import checked_plan
from gan_core.store.coordinator import versions
from gan_core.units import TrainingState


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One training as whoever submitted it sees it."""

    id: int
    name: str
    owner: str  # "" if a person started it in Prefect
    state: TrainingState
    message: str
    iteration: int
    images: int
    plan: dict[str, Any]
    priority: int
    gpus: int
    memory_mb: int
    min_workers: int
    max_workers: int | None
    data_fingerprint: str
    data_images: int
    created_at: datetime
    started_at: datetime | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", TrainingState(self.state))


TICKET = (
    "SELECT id, name, owner, state, message, iteration, images, plan, priority, gpus, memory_mb, min_workers, max_workers,"
    " data_fingerprint, data_images, created_at, started_at FROM classgan.trainings"
)


def submit(
    connection: Connection, name: str, plan: dict[str, Any], demand: dict[str, Any], owner: str, key: str | None = None
) -> tuple[str, bool]:
    """Take a training into the queue; returns its name, and whether it was made now.

    Args:
        demand: the fields of demand.Demand.
        key: the same again, of the same owner, is the same training, whatever else was given.

    Raises:
        TrainingError: another training has this name.
        DataError: the plan names a version of its data that doesn't exist.
        PlanError: it can't be trained, or has what a new plan may not have.
    """
    checked_plan(plan).require_new()
    if "@" in (version := plan.get("data_version", "")):
        versions.data_version(connection, version)
    row = connection.execute(
        "SELECT name, is_new FROM classgan.submit(%(name)s, %(plan)s, %(owner)s, %(priority)s, %(gpus)s, %(memory_mb)s,"
        " %(min_workers)s, %(max_workers)s, %(key)s)",
        {**demand, "name": name, "plan": Jsonb(plan), "owner": owner, "key": key or None},
    ).fetchone()
    assert row is not None
    found, is_new = row
    if not is_new and not (key and _keyed(connection, found) == (owner, key)):
        raise TrainingError(
            f"There is a training called {name!r} already. Choose another name, or continue it: classgan resume {name}."
        )
    return found, is_new


def _keyed(connection: Connection, name: str) -> tuple[str, str | None] | None:
    return connection.execute(
        "SELECT owner, idempotency_key FROM classgan.trainings WHERE name = %s", (name,)
    ).fetchone()


def ticket(connection: Connection, name: str) -> Ticket | None:
    with connection.cursor(row_factory=class_row(Ticket)) as cursor:
        return cursor.execute(f"{TICKET} WHERE name = %s", (name,)).fetchone()


def tickets(
    connection: Connection,
    owner: str | None = None,
    state: TrainingState | None = None,
    after: int = 0,
    limit: int = 50,
) -> list[Ticket]:
    """Trainings, the newest first; of one owner, or in one state; those before the id `after`, if it isn't 0."""
    with connection.cursor(row_factory=class_row(Ticket)) as cursor:
        return cursor.execute(
            f"{TICKET} WHERE (%(owner)s::text IS NULL OR owner = %(owner)s) AND (%(state)s::text IS NULL OR state::text = %(state)s)"
            " AND (%(after)s = 0 OR id < %(after)s) ORDER BY id DESC LIMIT %(limit)s",
            {"owner": owner, "state": state, "after": after, "limit": limit},
        ).fetchall()


def alive(connection: Connection, owner: str) -> int:
    """Trainings of this owner that run or wait for it."""
    row = connection.execute(
        "SELECT count(*) FROM classgan.trainings WHERE owner = %s AND state IN ('queued', 'launching', 'running')",
        (owner,),
    ).fetchone()
    return row[0] if row else 0


def known_data(connection: Connection) -> list[str]:
    """What the plans of trainings learn from that no student submitted."""
    rows = connection.execute(
        "SELECT DISTINCT plan->>'data' FROM classgan.trainings WHERE owner NOT IN (SELECT login FROM classgan.students) ORDER BY 1"
    ).fetchall()
    return [row[0] for row in rows]


def demand_of(connection: Connection, training_id: int) -> dict[str, Any]:
    """The fields of demand.Demand that this training was submitted with."""
    row = connection.execute(
        "SELECT priority, gpus, memory_mb, min_workers, max_workers FROM classgan.trainings WHERE id = %s",
        (training_id,),
    ).fetchone()
    assert row is not None
    return dict(zip(("priority", "gpus", "memory_mb", "min_workers", "max_workers"), row, strict=True))


def set_priority(connection: Connection, training_id: int, priority: int) -> None:
    """Let it come before or after others from the queue's next look on; its place by hand is lost."""
    connection.execute(
        "UPDATE classgan.trainings SET priority = %s, place_in_queue = NULL, updated_at = now() WHERE id = %s",
        (priority, training_id),
    )


def set_places(connection: Connection, training_ids: Sequence[int], priority: int) -> None:
    """Put these trainings first among those of this priority, in this order."""
    connection.execute(
        "UPDATE classgan.trainings SET place_in_queue = n, priority = %s, updated_at = now()"
        " FROM unnest(%s::bigint[]) WITH ORDINALITY AS placed (training, n) WHERE id = training",
        (priority, list(training_ids)),
    )


def call(connection: Connection, training_ids: Sequence[int]) -> None:
    """Note that Prefect is being asked for these trainings' coordinators."""
    connection.execute("UPDATE classgan.trainings SET called_at = now() WHERE id = ANY (%s)", (list(training_ids),))


def call_again(connection: Connection, training_ids: Sequence[int]) -> None:
    """Note that Prefect did not answer: the next look calls these coordinators again."""
    connection.execute("UPDATE classgan.trainings SET called_at = 'epoch' WHERE id = ANY (%s)", (list(training_ids),))


def next_call(connection: Connection, training_id: int, after: int) -> int:
    """The number of a new run, when the one with the number `after` has ended. Asked twice, it is the same."""
    row = connection.execute(
        "UPDATE classgan.trainings SET calls = greatest(calls, %s) WHERE id = %s RETURNING calls",
        (after + 1, training_id),
    ).fetchone()
    assert row is not None
    return row[0]


def say(connection: Connection, training_id: int, reason: str) -> None:
    """Let a queued training say why it waits."""
    connection.execute(
        "UPDATE classgan.trainings SET message = %s WHERE id = %s AND state = 'queued' AND message <> %s",
        (reason, training_id, reason),
    )


def put_back(connection: Connection, training_id: int, message: str) -> None:
    """Put a running training back into the queue; what is computed for it now is still accepted."""
    connection.execute("SELECT classgan.put_back(%s, %s)", (training_id, message))
