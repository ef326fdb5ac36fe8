"""Runs: each time that a coordinator led a training, with what, from when to when, and why it ended. And what they measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from psycopg import Connection
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from gan_core.plan import checked_plan
from gan_core.store.coordinator.leader_lock import place

PACKAGES = ("torch", "torchvision", "numpy", "prefect", "psycopg", "pydantic", "safetensors")  # what results depend on

By = Literal["iteration", "epoch", "worker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a training's coordinator."""

    id: int
    training: str
    number: int  # of this training, from 1
    plan: dict[str, Any]  # as it began
    plan_hash: str
    code_version: str
    packages: dict[str, str]
    place: str
    first_iteration: int
    started_at: datetime
    ended_at: datetime | None
    last_iteration: int | None
    outcome: str  # the training's state at the end, or "taken over"; "" while it runs
    reason: str

    @property
    def said(self) -> str:
        """How it stands, for people."""
        return self.outcome or "running"


RUN = (
    "SELECT r.id, t.name AS training, r.number, r.plan, r.plan_hash, r.code_version, r.packages, r.place, r.first_iteration,"
    " r.started_at, r.ended_at, r.last_iteration, r.outcome, r.reason"
    " FROM classgan.runs AS r JOIN classgan.trainings AS t ON t.id = r.training_id"
)


def begin(connection: Connection, training_id: int, plan: Mapping[str, Any]) -> int:
    """Note that a coordinator leads from now on; returns the run's id. One that never said goodbye ends here.

    How it ends is noted by the database, with the training's change of state.
    """
    with connection.transaction():
        connection.execute("SELECT FROM classgan.trainings WHERE id = %s FOR UPDATE", (training_id,))
        connection.execute("SELECT classgan.end_run(%s, 'taken over', %s)", (training_id, f"by {place()}"))
        row = connection.execute(
            "INSERT INTO classgan.runs"
            " (training_id, number, plan, plan_hash, code_version, packages, place, first_iteration)"
            " SELECT id, 1 + (SELECT count(*) FROM classgan.runs WHERE training_id = %(training)s),"
            " %(plan)s, %(plan_hash)s, %(code_version)s, %(packages)s, %(place)s, iteration"
            " FROM classgan.trainings WHERE id = %(training)s RETURNING id",
            {
                "training": training_id,
                "plan": Jsonb(dict(plan)),
                "plan_hash": checked_plan(plan).fingerprint,
                "code_version": version("classgan"),
                "packages": Jsonb(_packages()),
                "place": place(),
            },
        ).fetchone()
    assert row is not None
    return row[0]


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def every(connection: Connection, training: str = "", limit: int = 100) -> list[Run]:
    """Runs of one training, or of all; the newest first."""
    with connection.cursor(row_factory=class_row(Run)) as cursor:
        return cursor.execute(
            f"{RUN} WHERE %(name)s = '' OR t.name = %(name)s ORDER BY r.id DESC LIMIT %(limit)s",
            {"name": training, "limit": limit},
        ).fetchall()


# What each iteration measured; the last columns where its weights were evaluated.
ITERATIONS = """
    SELECT i.number + 1 AS iteration, (i.position + t.data_images - 1) / greatest(1, t.data_images) AS epoch, i.closed_at,
           i.seconds, i.images, i.contributions, i.workers,
           i.g_loss, i.d_loss, i.d_real_accuracy, i.d_fake_accuracy,
           e.frechet, e.kid, e.kid_error, e.wasserstein, e.diversity, e.coverage, e.fid, e.inception_distance, e.measured_at
    FROM watch.iterations AS i JOIN classgan.trainings AS t ON t.id = i.training_id
    LEFT JOIN classgan.evaluations AS e ON e.training_id = i.training_id AND e.iteration = i.number + 1
    WHERE i.training_id = %s AND i.closed_at IS NOT NULL AND i.contributions > 0 ORDER BY i.number
"""
EPOCHS = f"""
    SELECT epoch, min(iteration) AS first_iteration, max(iteration) AS last_iteration, sum(seconds) AS seconds,
           sum(images)::bigint AS images, sum(contributions)::bigint AS contributions, max(workers) AS most_workers,
           sum(g_loss * images) / sum(images) AS g_loss, sum(d_loss * images) / sum(images) AS d_loss,
           sum(d_real_accuracy * images) / sum(images) AS d_real_accuracy,
           sum(d_fake_accuracy * images) / sum(images) AS d_fake_accuracy,
           (array_agg(frechet ORDER BY iteration DESC) FILTER (WHERE frechet IS NOT NULL))[1] AS frechet,
           (array_agg(wasserstein ORDER BY iteration DESC) FILTER (WHERE frechet IS NOT NULL))[1] AS wasserstein
    FROM ({ITERATIONS.rpartition("ORDER")[0]}) AS each GROUP BY epoch ORDER BY epoch
"""
WORKERS = """
    SELECT w.name AS worker, s.display_name AS student, w.device, min(c.submitted_at) AS first, max(c.submitted_at) AS last,
           sum(c.units)::bigint AS units, sum(c.images)::bigint AS images, sum(c.seconds) AS seconds,
           sum(c.images) / greatest(1e-9, sum(c.seconds)) AS images_per_second,
           sum(c.g_loss * c.images) / sum(c.images) AS g_loss, sum(c.d_loss * c.images) / sum(c.images) AS d_loss
    FROM classgan.contributions AS c JOIN classgan.workers AS w ON w.id = c.worker_id
    JOIN classgan.students AS s ON s.id = w.student_id
    WHERE c.training_id = %s AND c.verdict = 'accepted' AND c.images > 0
    GROUP BY w.id, s.id ORDER BY images DESC, worker
"""
METRICS: Mapping[By, str] = {"iteration": ITERATIONS, "epoch": EPOCHS, "worker": WORKERS}


def metrics(connection: Connection, training_id: int, by: By) -> list[dict[str, Any]]:
    """What a training measured, one row an iteration, an epoch (means weighted by images) or a worker."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(METRICS[by].encode(), (training_id,)).fetchall()
