"""Who did how much, derived from accepted contributions; and what a training looks like right now."""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.store.logins import CLUSTER_LOGIN
from gan_core.units import TrainingState

ONLINE = 60.0  # seconds without a word after which a machine counts as gone
# What an IterationRow is made of.
ITERATION: LiteralString = (
    "number, images, contributions, workers, g_loss, d_loss, d_real_accuracy, d_fake_accuracy, seconds, closed_at"
)
LEADER_AWAY = 10.0  # seconds without a heartbeat; they come every three


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
        return self.seconds_silent < ONLINE


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
    seconds: float  # from opening to publishing, without pauses
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
    images_per_second: float  # over the last minute; 0 of one that doesn't run
    last: IterationRow | None
    quorum: int  # images that the open iteration needs; expected ones, if it closes in time
    seconds_left: float | None  # until it does; None: it waits for its images
    gathered: int  # images that it has
    open: int  # units that wait for a worker
    leased: int  # units that a worker has
    workers_online: int  # heard of within 20 seconds
    workers_waiting: int  # joined, and without a shift
    leader: str | None  # host and process of the coordinator that leads
    leader_silent: float  # seconds since its last heartbeat
    standbys: tuple[str, ...]

    @property
    def is_led(self) -> bool:
        """Whether a living coordinator moves it on."""
        return self.leader is not None and self.leader_silent < LEADER_AWAY


def credits(connection: Connection) -> list[Credit]:
    """Every student's credit, the most images first."""
    with connection.cursor(row_factory=class_row(Credit)) as cursor:
        return cursor.execute(
            "SELECT login, display_name, units, images, seconds, late, refused, first_at, last_at"
            " FROM classgan.ledger ORDER BY images DESC, login",
        ).fetchall()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentRow:
    """One student, for the instructor."""

    id: int
    login: str
    display_name: str
    suspended: str  # why; "" if not
    has_login: bool  # at the class server
    machines: int
    images: int  # credited


def students(connection: Connection) -> list[StudentRow]:
    """Every student, by login."""
    with connection.cursor(row_factory=class_row(StudentRow)) as cursor:
        return cursor.execute(
            "SELECT s.id, s.login, s.display_name, s.suspended, s.secret_hash <> '' AS has_login, l.images,"
            " (SELECT count(*) FROM classgan.workers AS w WHERE w.student_id = s.id) AS machines"
            " FROM classgan.students AS s JOIN classgan.ledger AS l ON l.student_id = s.id ORDER BY s.login"
        ).fetchall()


def named_contributors(connection: Connection, training_id: int) -> list[str]:
    """Display names of this training's contributors who want to be named, the most images first."""
    rows = connection.execute(
        "SELECT s.display_name FROM classgan.students AS s JOIN classgan.workers AS w ON w.student_id = s.id"
        " JOIN classgan.contributions AS c ON c.worker_id = w.id AND c.credited"
        " WHERE c.training_id = %s AND s.named GROUP BY s.id ORDER BY sum(c.images) DESC, s.display_name",
        (training_id,),
    ).fetchall()
    return [name for (name,) in rows]


def contributing_students(connection: Connection, training_id: int) -> int:
    """How many people's machines worked for this training; pods of a cluster are machines, but nobody's."""
    row = connection.execute(
        "SELECT count(DISTINCT s.id) FROM classgan.students AS s JOIN classgan.workers AS w ON w.student_id = s.id"
        " JOIN classgan.contributions AS c ON c.worker_id = w.id AND c.verdict = 'accepted' AND c.images > 0"
        " WHERE c.training_id = %s AND s.login <> %s",
        (training_id, CLUSTER_LOGIN),
    ).fetchone()
    return row[0] if row else 0


def suspend(connection: Connection, student_id: int, reason: str) -> None:
    """Shut a student out at once, with this reason; let them in again, if it is empty. Credit stays."""
    connection.execute("SELECT classgan.suspend(%s, %s)", (student_id, reason))


def workers(connection: Connection, training: str = "") -> list[WorkerRow]:
    """Every machine, the most images first; counted are those of one training, or of all. One that has joined and has
    no shift yet is there, too.
    """
    with connection.cursor(row_factory=class_row(WorkerRow)) as cursor:
        return cursor.execute(
            "SELECT w.name, s.display_name AS student, w.device, w.images_per_second, w.message,"
            " least(extract(epoch FROM now() - w.last_seen), min(j.seconds_silent))::float AS seconds_silent,"
            " coalesce(sum(c.units), 0)::bigint AS units, coalesce(sum(c.images), 0)::bigint AS images"
            " FROM classgan.workers AS w JOIN classgan.students AS s ON s.id = w.student_id"
            " LEFT JOIN classgan.contributions AS c ON c.worker_id = w.id AND c.verdict = 'accepted' AND (%s = '' OR"
            "   c.training_id = (SELECT id FROM classgan.trainings WHERE name = %s))"
            " LEFT JOIN classgan.waiting AS j ON j.name = w.name OR starts_with(w.name, j.name || ' ')"
            " GROUP BY w.id, s.id UNION ALL"
            " SELECT j.name, j.student, '', NULL, 'has joined, and waits for work', j.seconds_silent, 0, 0 FROM classgan.waiting AS j"
            " WHERE NOT EXISTS (SELECT FROM classgan.workers AS w WHERE w.name = j.name OR starts_with(w.name, j.name || ' '))"
            " ORDER BY images DESC, name",
            (training, training),
        ).fetchall()


def machines_called(connection: Connection, name: str) -> list[int]:
    """The ids of the machines that somebody may mean: by its name, or by its student's login or display name."""
    rows = connection.execute(
        "SELECT w.id FROM classgan.workers AS w JOIN classgan.students AS s ON s.id = w.student_id"
        " WHERE %s IN (w.name, s.login, s.display_name) ORDER BY w.id",
        (name,),
    ).fetchall()
    return [row[0] for row in rows]


def history_after(connection: Connection, training_id: int, after: int, limit: int) -> list[IterationRow]:
    """The closed iterations whose number is beyond `after`, the oldest first."""
    with connection.cursor(row_factory=class_row(IterationRow)) as cursor:
        return cursor.execute(
            f"SELECT {ITERATION} FROM watch.iterations"
            " WHERE training_id = %s AND closed_at IS NOT NULL AND contributions > 0 AND number > %s ORDER BY number LIMIT %s",
            (training_id, after, limit),
        ).fetchall()


def history(connection: Connection, training_id: int, limit: int = 1_000_000) -> list[IterationRow]:
    """The latest closed iterations, the oldest of them first."""
    with connection.cursor(row_factory=class_row(IterationRow)) as cursor:
        return cursor.execute(
            f"SELECT * FROM (SELECT {ITERATION}"
            " FROM watch.iterations WHERE training_id = %s AND closed_at IS NOT NULL AND contributions > 0 ORDER BY number DESC LIMIT %s) AS latest"
            " ORDER BY number",
            (training_id, limit),
        ).fetchall()


def seconds_trained(connection: Connection, training_id: int) -> float:
    """How long it was led, without its time in the queue, its preparation and its pauses."""
    row = connection.execute("SELECT seconds_trained FROM watch.trainings WHERE id = %s", (training_id,)).fetchone()
    return row[0] if row else 0.0


def overview(connection: Connection, name: str) -> Overview | None:
    """How this training stands; None if there is none of this name."""
    row = connection.execute(
        "SELECT t.id, t.state, t.message, t.iteration, t.images, t.position, t.data_images, coalesce(("
        "   SELECT sum(images) / greatest(1, extract(epoch FROM now() - min(opened_at))) FROM classgan.iterations AS i"
        "   WHERE t.state = 'running' AND i.training_id = t.id AND i.images > 0 AND i.closed_at > now() - interval '1 minute'), 0)::float"
        " FROM classgan.trainings AS t WHERE t.name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    training_id = row[0]
    round_ = connection.execute(
        "SELECT coalesce(sum(images) FILTER (WHERE state = 'done'), 0)::bigint, count(*) FILTER (WHERE state = 'open'),"
        " count(*) FILTER (WHERE state = 'leased'), (SELECT count(*) FROM classgan.workers WHERE last_seen > now() - interval '20 seconds'),"
        " (SELECT count(*) FROM classgan.waiting),"
        " coalesce((SELECT quorum FROM classgan.iterations WHERE training_id = %s AND number = %s), 0),"
        " classgan.seconds_left(%s, %s)"
        " FROM classgan.units WHERE training_id = %s AND iteration = %s",
        3 * (training_id, row[3]),
    ).fetchone()
    assert round_ is not None
    coordinators = connection.execute(
        "SELECT place, leads, extract(epoch FROM now() - last_seen)::float FROM classgan.coordinators"
        " WHERE training_id = %s ORDER BY started_at",
        (training_id,),
    ).fetchall()
    leader = next(((place, silent) for place, leads, silent in coordinators if leads), (None, 0.0))
    _, state, message, iteration, images, position, data_images, speed = row
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
        gathered=round_[0],
        open=round_[1],
        leased=round_[2],
        workers_online=round_[3],
        workers_waiting=round_[4],
        quorum=round_[5],
        seconds_left=round_[6],
        leader=leader[0],
        leader_silent=leader[1],
        standbys=tuple(place for place, leads, silent in coordinators if not leads and silent < LEADER_AWAY),
    )
