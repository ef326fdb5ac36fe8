"""Contributions that the database chose to be checked, until they were compared with another or recomputed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from gan_core.store.coordinator.trainings import KEPT_WEIGHTS
from gan_core.units import WorkUnit

DISPUTED = 16  # contributions of pairs that don't agree, waiting to be recomputed


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two students' contributions to the same units, with all that it takes to compare them."""

    contribution_ids: tuple[int, int]
    workers: tuple[str, str]
    iteration: int
    plan: dict[str, Any]
    payloads: tuple[bytes, bytes]
    trails: tuple[bytes, bytes]
    units: tuple[WorkUnit, ...]


def next_pair(connection: Connection, training_id: int) -> Pair | None:
    """The pair of this training that waits longest. None if none does."""
    row = connection.execute(
        "SELECT contribution_ids, workers, iteration, plan, payloads, trails, ordinals, epochs, seeds, sizes, indices"
        " FROM classgan.next_pair(%s)",
        (training_id,),
        binary=True,
    ).fetchone()
    if row is None:
        return None
    ids, workers, iteration, plan, payloads, trails, *units = row
    return Pair(
        contribution_ids=tuple(ids),
        workers=tuple(workers),
        iteration=iteration,
        plan=plan,
        payloads=tuple(payloads),
        trails=tuple(trails),
        units=_units(*units),
    )


def dispute(connection: Connection, pair: Pair) -> None:
    """Have both recomputed, before any other. While as many wait as can be recomputed soon, nothing is proven instead."""
    both = list(pair.contribution_ids)
    connection.execute(
        "WITH gone AS (DELETE FROM classgan.checks WHERE contribution_id = ANY (%s) AND checked_at IS NULL"
        "   AND classgan.disputed_checks(training_id) >= %s RETURNING contribution_id)"
        " UPDATE classgan.checks SET trail = NULL, disputed = true WHERE contribution_id = ANY (%s) AND checked_at IS NULL"
        " AND contribution_id NOT IN (SELECT contribution_id FROM gone)",
        (both, DISPUTED, both),
    )


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
    contribution_id, worker, iteration, plan, fingerprint, images = about
    return Waiting(
        contribution_id=contribution_id,
        worker=worker,
        iteration=iteration,
        plan=plan,
        data_fingerprint=fingerprint,
        data_images=images,
        units=_units(ordinals, epochs, seeds, sizes, indices),
        payload=payload,
        weights=weights,
    )


def _units(
    ordinals: Sequence[int], epochs: Sequence[int], seeds: Sequence[int], sizes: Sequence[int], indices: Sequence[int]
) -> tuple[WorkUnit, ...]:
    """One for each ordinal; `indices` holds their images one after the other."""
    ends = list(accumulate(sizes))
    return tuple(
        WorkUnit(ordinal=ordinal, epoch=epoch, indices=tuple(indices[end - size : end]), seed=seed)
        for ordinal, epoch, seed, size, end in zip(ordinals, epochs, seeds, sizes, ends, strict=True)
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
