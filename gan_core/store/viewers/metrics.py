"""The figures that Prometheus keeps: five queries of the views of schema `watch`, however large the class is.

The dearest counts every contribution; all others follow an index or look at one row a machine or a training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.units import Presence, TrainingState, Verdict

TRAININGS = 20  # described one by one: those that aren't over first, then the newest
WORKERS = 200  # described one by one: those heard of last; all others are only counted
RECENT = "10 minutes"  # that the share of refused contributions is about
STARVED = "out of memory|not enough memory|allocate memory"  # in a worker's last message, as PyTorch says it


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMetrics:
    """One training; losses and age are None until an iteration has closed."""

    name: str
    state: TrainingState
    iteration: int
    images: int
    images_per_second: float  # of the last minute
    g_loss: float | None
    d_loss: float | None
    iteration_age: float | None  # seconds since the last one closed
    quorum: int  # images that the open iteration needs
    gathered: int  # images that it has
    open: int  # units
    leased: int  # units


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMetrics:
    """One worker, by its student's display name."""

    id: int
    name: str
    images_per_second: float | None
    seconds_silent: float
    units_in_hand: int
    gpu_memory_mb: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMetrics:
    """How the whole class is, at one moment."""

    states: Mapping[TrainingState, int]  # trainings in each
    trainings: list[TrainingMetrics]  # at most TRAININGS
    longest_wait: float  # seconds, of those that are queued
    wanted_gpu_memory_mb: int  # the most that a queued one asks for
    presences: Mapping[Presence, int]  # workers in each
    starved: int  # workers online whose last message says that memory ran out
    workers: list[WorkerMetrics]  # at most WORKERS, each with a name of its own
    contributions: Mapping[Verdict, int]
    images: Mapping[Verdict, int]
    refused_ratio: float  # of the contributions of the last ten minutes, 0 to 1; 0 if there were none
    checks: Mapping[bool | None, int]  # contributions recomputed: valid, invalid, and (None) still waiting for it


def read(connection: Connection) -> ClassMetrics:
    """Look once; see `watching.viewer` for the connection."""
    ask = connection.execute
    states = {state: (n, wait, memory) for state, n, wait, memory in ask(
        "SELECT state, count(*), max(seconds_waiting), max(memory_mb) FROM watch.trainings GROUP BY state"
    )}  # fmt: skip
    queued = states.get(TrainingState.QUEUED, (0, 0.0, 0))
    silences = [(Presence.of(silent), is_starved) for silent, is_starved in ask(
        "SELECT seconds_silent, message ~* %s FROM watch.machines", (STARVED,)
    )]  # fmt: skip
    verdicts = {verdict: counts for verdict, *counts in ask(
        "SELECT verdict, count(*), sum(images)::bigint, count(*) FILTER (WHERE submitted_at > now() - %s::interval)"
        " FROM watch.answers GROUP BY verdict", (RECENT,),
    )}  # fmt: skip
    counted = {verdict: verdicts.get(verdict, [0, 0, 0]) for verdict in Verdict}
    recent = sum(counts[2] for counts in counted.values())
    checks = dict(ask("SELECT valid, sum(checks)::bigint FROM watch.checks GROUP BY valid").fetchall())
    return ClassMetrics(
        states={state: states.get(state, (0,))[0] for state in TrainingState},
        trainings=_trainings(connection),
        longest_wait=queued[1] or 0.0,
        wanted_gpu_memory_mb=queued[2],
        presences={p: sum(found is p for found, _ in silences) for p in Presence},
        starved=sum(found is Presence.ONLINE and is_starved for found, is_starved in silences),
        workers=_workers(connection),
        contributions={verdict: counts[0] for verdict, counts in counted.items()},
        images={verdict: counts[1] for verdict, counts in counted.items()},
        refused_ratio=counted[Verdict.REFUSED][2] / recent if recent else 0.0,
        checks={valid: checks.get(valid, 0) for valid in (True, False, None)},
    )


def _trainings(connection: Connection) -> list[TrainingMetrics]:
    over = [state for state in TrainingState if state.is_over]
    return _rows(
        connection,
        TrainingMetrics,
        "SELECT t.name, t.state, t.iteration, t.images, r.quorum, r.gathered, r.open, r.leased, last.g_loss, last.d_loss,"
        " extract(epoch FROM now() - last.closed_at)::float AS iteration_age, coalesce(("
        "   SELECT sum(images) / greatest(1, extract(epoch FROM now() - min(opened_at))) FROM ("
        "     SELECT images, opened_at, closed_at FROM watch.iterations WHERE training_id = t.id ORDER BY number DESC LIMIT 500"
        "   ) AS latest WHERE t.state = 'running' AND images > 0 AND closed_at > now() - interval '1 minute'), 0)::float AS images_per_second"
        " FROM (SELECT * FROM watch.trainings ORDER BY state::text = ANY (%s), id DESC LIMIT %s) AS t"
        " JOIN watch.rounds AS r ON r.training_id = t.id LEFT JOIN LATERAL ("
        "   SELECT g_loss, d_loss, closed_at FROM watch.iterations"
        "   WHERE training_id = t.id AND closed_at IS NOT NULL AND contributions > 0 ORDER BY number DESC LIMIT 1"
        " ) AS last ON true ORDER BY t.id",
        (over, TRAININGS),
    )


def _workers(connection: Connection) -> list[WorkerMetrics]:
    """Two students may have the same display name: then the worker's number tells their machines apart."""
    return _rows(
        connection,
        WorkerMetrics,
        "SELECT id, name || CASE WHEN count(*) OVER (PARTITION BY name) > 1 THEN ' #' || id ELSE '' END AS name,"
        " images_per_second, seconds_silent, units_in_hand, gpu_memory_mb FROM ("
        "   SELECT *, student || coalesce(' (' || nullif(machine, '') || ')', '') AS name FROM watch.machines"
        "   ORDER BY seconds_silent, id LIMIT %s) AS latest ORDER BY id",
        (WORKERS,),
    )


def _rows(connection: Connection, kind: type[Any], query: str, values: tuple[object, ...]) -> list[Any]:
    with connection.cursor(row_factory=class_row(kind)) as cursor:
        return cursor.execute(query.encode(), values).fetchall()
