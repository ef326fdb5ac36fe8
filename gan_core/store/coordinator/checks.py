"""Contributions that the database chose to be checked, until somebody has recomputed them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from gan_core.store.coordinator.trainings import KEPT_WEIGHTS
from gan_core.units import WorkUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One contribution with all that it takes to recompute it."""

    contribution_id: int
    worker: str
    iteration: int
    plan: dict[str, Any]  # that the lease was handed out with
    data_fingerprint: str
    data_images: int
    units: tuple[WorkUnit, ...]
    payload: bytes
    weights: bytes


def next_check(connection: Connection, training_id: int) -> Waiting | None:
    """The contribution of this training that waits longest. None if none does."""
    row = connection.execute(
        "SELECT contribution_id, worker, iteration, plan, data_fingerprint, data_images, payload, weights,"
        " ordinals, epochs, seeds, sizes, indices FROM classgan.next_check(%s)",
        (training_id,),
        binary=True,
    ).fetchone()
    if row is None:
        return None
    *about, payload, weights, ordinals, epochs, seeds, sizes, indices = row
    units, start = [], 0
    for ordinal, epoch, seed, size in zip(ordinals, epochs, seeds, sizes, strict=True):
        units.append(WorkUnit(ordinal=ordinal, epoch=epoch, indices=tuple(indices[start : start + size]), seed=seed))
        start += size
    contribution_id, worker, iteration, plan, fingerprint, images = about
    return Waiting(
        contribution_id=contribution_id,
        worker=worker,
        iteration=iteration,
        plan=plan,
        data_fingerprint=fingerprint,
        data_images=images,
        units=tuple(units),
        payload=payload,
        weights=weights,
    )


def record(
    connection: Connection, contribution_id: int, valid: bool, reason: str, figures: Mapping[str, Any], seconds: float
) -> None:
    """Write down what a check said. May be repeated: a second time changes nothing."""
    connection.execute(
        "SELECT classgan.record_check(%s, %s, %s, %s, %s, %s)",
        (contribution_id, valid, reason, Jsonb(dict(figures)), seconds, KEPT_WEIGHTS),
    )


def let_go(connection: Connection, contribution_id: int) -> None:
    """Leave this one unchecked: its credit stays, and it proves nothing."""
    connection.execute(
        "DELETE FROM classgan.checks WHERE contribution_id = %s AND checked_at IS NULL", (contribution_id,)
    )


def drop_stale(connection: Connection) -> int:
    """Let go what waits for a check in trainings that are over, and weights that only such checks kept; returns how many."""
    dropped = connection.execute(
        "DELETE FROM classgan.checks USING classgan.trainings AS t WHERE t.id = training_id AND checked_at IS NULL"
        " AND t.state IN ('succeeded', 'cancelled')"
    ).rowcount
    connection.execute("SELECT classgan.drop_old_weights(id, %s) FROM classgan.trainings", (KEPT_WEIGHTS,))
    return dropped


def waiting(connection: Connection, training_id: int) -> int:
    """How many contributions of this training wait for their check."""
    row = connection.execute(
        "SELECT count(*) FROM classgan.checks WHERE training_id = %s AND checked_at IS NULL", (training_id,)
    ).fetchone()
    return row[0] if row else 0
