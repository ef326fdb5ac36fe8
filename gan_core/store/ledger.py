"""Who did how much, derived from accepted contributions; and what a training looks like right now."""

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.units import TrainingState


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """One student's work. Students without any have zeros."""

    login: str
    display_name: str
    units: int
    images: int
    seconds: float
    late: int
    refused: int
    first_at: datetime | None
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """One machine, as last heard of."""

    name: str
    student: str
    device: str
    images_per_second: float | None
    seconds_silent: float
    units: int
    images: int
    message: str

    @property
    def is_online(self) -> bool:
        return self.seconds_silent < 60


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRow:
    """One closed iteration."""

    number: int
    images: int
    contributions: int
    workers: int
    g_loss: float
    d_loss: float
    d_real_accuracy: float
    d_fake_accuracy: float
    seconds: float  # from opening to publishing
    closed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A training in figures, for a status line."""

    name: str
    state: TrainingState
    message: str
    iteration: int
    images: int  # seen
    position: int  # handed out
    data_images: int  # in the data set
    images_per_second: float  # over the last minute
    last: IterationRow | None


def credits(connection: Connection) -> list[Credit]:
    """Every student's credit, the most images first."""
    with connection.cursor(row_factory=class_row(Credit)) as cursor:
        return cursor.execute(
            "SELECT login, display_name, units, images, seconds, late, refused, first_at, last_at"
            " FROM classgan.ledger ORDER BY images DESC, login",
        ).fetchall()


def workers(connection: Connection, training: str = "") -> list[WorkerRow]:
    """Every machine, the most images first; counted are those of one training, or of all."""
    with connection.cursor(row_factory=class_row(WorkerRow)) as cursor:
        return cursor.execute(
            "SELECT w.name, s.display_name AS student, w.device, w.images_per_second, w.message,"
            " extract(epoch FROM now() - w.last_seen)::float AS seconds_silent,"
            " coalesce(sum(c.units), 0)::bigint AS units, coalesce(sum(c.images), 0)::bigint AS images"
            " FROM classgan.workers AS w JOIN classgan.students AS s ON s.id = w.student_id"
            " LEFT JOIN classgan.contributions AS c ON c.worker_id = w.id AND c.verdict = 'accepted' AND (%s = '' OR"
            "   c.training_id = (SELECT id FROM classgan.trainings WHERE name = %s))"
            " GROUP BY w.id, s.id ORDER BY images DESC, w.name",
            (training, training),
        ).fetchall()


def history(connection: Connection, training_id: int, limit: int = 1_000_000) -> list[IterationRow]:
    """The latest closed iterations, the oldest of them first."""
    with connection.cursor(row_factory=class_row(IterationRow)) as cursor:
        return cursor.execute(
            "SELECT * FROM (SELECT number, images, contributions, workers, g_loss, d_loss, d_real_accuracy, d_fake_accuracy,"
            " extract(epoch FROM closed_at - opened_at)::float AS seconds, closed_at"
            " FROM classgan.iterations WHERE training_id = %s AND closed_at IS NOT NULL ORDER BY number DESC LIMIT %s) AS latest"
            " ORDER BY number",
            (training_id, limit),
        ).fetchall()


def overview(connection: Connection, name: str) -> Overview | None:
    """How this training stands; None if there is none of this name."""
    row = connection.execute(
        "SELECT t.id, t.state, t.message, t.iteration, t.images, t.position, t.data_images, coalesce(("
        "   SELECT sum(images) / greatest(1, extract(epoch FROM now() - min(opened_at))) FROM classgan.iterations AS i"
        "   WHERE i.training_id = t.id AND i.closed_at > now() - interval '1 minute'), 0)::float"
        " FROM classgan.trainings AS t WHERE t.name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    training_id, state, message, iteration, images, position, data_images, speed = row
    latest = history(connection, training_id, limit=1)
    return Overview(
        name=name,
        state=TrainingState(state),
        message=message,
        iteration=iteration,
        images=images,
        position=position,
        data_images=data_images,
        images_per_second=speed,
        last=latest[0] if latest else None,
    )
