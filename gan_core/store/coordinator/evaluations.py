"""How good a training's samples were, iteration by iteration."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import class_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The quality scores after one iteration; gan_core/quality/scores.py says what they are."""

    iteration: int
    images: int  # seen in training
    seconds: float  # of training until then: the sum of its iterations, without pauses
    took: float  # seconds of measuring
    protocol: str
    frechet: float
    wasserstein: float
    diversity: float
    coverage: float
    kid: float | None = None  # version 0.1 didn't measure it
    kid_error: float | None = None  # its standard error
    fid: float | None = None  # of 10,000 samples
    inception_distance: float | None = None  # of 1,024: version 0.1 called it FID

    def sentence(self) -> str:
        """The figures for people."""
        kid = f", KID {self.kid:.3f} ± {self.kid_error:.3f}" if self.kid is not None else ""
        fid = f", FID {self.fid:.1f}" if self.fid is not None else ""
        if self.inception_distance is not None:
            fid = f", Inception distance {self.inception_distance:.1f} (1,024 samples)"
        return (
            f"after iteration {self.iteration:,}: random-feature distance {self.frechet:.1f}{kid}, "
            f"Wasserstein {self.wasserstein:.1f}{fid}, diversity {self.diversity:.0%}, coverage {self.coverage:.0%}"
        )


COLUMNS = (
    "iteration, images, seconds, took, protocol, frechet, wasserstein, diversity, coverage, kid, kid_error, fid, "
    "inception_distance"
)


def training_seconds(connection: Connection, training_id: int, iteration: int) -> float:
    """Seconds that the iterations before this one took."""
    row = connection.execute(
        "SELECT coalesce(sum(seconds), 0)::float FROM watch.iterations WHERE training_id = %s AND number < %s",
        (training_id, iteration),
    ).fetchone()
    return row[0] if row else 0.0


def save(connection: Connection, training_id: int, evaluation: Evaluation) -> None:
    """Keep it; measured again, the new figures replace the old ones."""
    names = COLUMNS.split(", ")
    connection.execute(
        f"INSERT INTO classgan.evaluations (training_id, {COLUMNS}) VALUES (%s{', %s' * len(names)})"
        f" ON CONFLICT (training_id, iteration) DO UPDATE SET {', '.join(f'{n} = excluded.{n}' for n in names)},"
        " measured_at = now()",
        (training_id, *(getattr(evaluation, name) for name in names)),
    )


def of_training(connection: Connection, training_id: int) -> list[Evaluation]:
    """Every evaluation by the newest one's protocol, the oldest first: figures of two protocols can't be compared."""
    with connection.cursor(row_factory=class_row(Evaluation)) as cursor:
        rows = cursor.execute(
            f"SELECT {COLUMNS} FROM classgan.evaluations WHERE training_id = %s ORDER BY iteration", (training_id,)
        ).fetchall()
    return [row for row in rows if row.protocol == rows[-1].protocol]


FALL = 0.5  # of the best so far: what a figure must fall to before it counts as a collapse
BEGUN = 0.4  # diversity or coverage that a training must have shown before it can lose it; untrained: 0.33


def collapse(history: Sequence[Evaluation]) -> str:
    """A warning in words if the latest samples are much less varied than earlier ones; "" if they aren't.

    What a training draws that has only begun is of little variety: losing that is no collapse.
    """
    if not history:
        return ""
    now = history[-1]
    faults = []
    for figure, meaning in (
        ("diversity", "many samples are nearly the same image"),
        ("coverage", "whole kinds of images are missing among the samples"),
    ):
        value, best = getattr(now, figure), max(getattr(earlier, figure) for earlier in history)
        if best >= BEGUN and value < FALL * best:
            faults.append(f"{meaning} ({figure} {value:.0%}, it was {best:.0%})")
    if not faults:
        return ""
    return (
        f"Mode collapse after iteration {now.iteration}: {' and '.join(faults)}. It may pass; if it stays, lower "
        "learning_rate_g, or start a training with model=spectral and loss=hinge."
    )
