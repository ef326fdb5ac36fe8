"""Trainings on their way through the queue: submitted, moved, called. All of it by the instructor's login."""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from gan_core.errors import TrainingError


def submit(
    connection: Connection, name: str, plan: dict[str, Any], demand: dict[str, Any], owner: str, key: str | None = None
) -> tuple[str, bool]:
    """Take a training into the queue; returns its name, and whether it was made now.

    Args:
        demand: the fields of demand.Demand.
        key: the same again, of the same owner, is the same training, whatever else was given.

    Raises:
        TrainingError: another training has this name.
    """
    row = connection.execute(
        "SELECT name, is_new FROM classgan.submit(%(name)s, %(plan)s, %(owner)s, %(priority)s, %(gpus)s, %(memory_mb)s,"
        " %(min_workers)s, %(max_workers)s, %(key)s)",
        {**demand, "name": name, "plan": Jsonb(plan), "owner": owner, "key": key or None},
    ).fetchone()
    assert row is not None
    found, is_new = row
    if not is_new and not (key and _key_of(connection, found) == key):
        raise TrainingError(
            f"There is a training called {name!r} already. Choose another name, or continue it: classgan resume {name}."
        )
    return found, is_new


def _key_of(connection: Connection, name: str) -> str | None:
    row = connection.execute("SELECT idempotency_key FROM classgan.trainings WHERE name = %s", (name,)).fetchone()
    return row[0] if row else None


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
