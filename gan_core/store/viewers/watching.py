"""Reads what every viewer may see: the views of schema `watch`. Few queries, each cheap however long a training is."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.store.coordinator.events import Event
from gan_core.store.engine import connect
from gan_core.store.migrate import VIEWER_ROLE
from gan_core.store.viewers.ledger import ITERATION, IterationRow, Overview
from gan_core.units import LeaderboardRow, Presence, TrainingState

LEADER = "the instructor's machine"  # its name is nobody's business here
BREAKDOWN_ITERATIONS = 20  # closed ones that say where time goes now
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingView:
    """One training, as everybody may know it."""

    id: int
    name: str
    state: TrainingState
    plan: dict[str, Any]  # without `data`, which may name a folder
    data_images: int
    seconds_trained: float  # without its time in the queue, its preparation and its pauses
    ended_at: datetime | None  # of one that is over

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", TrainingState(self.state))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBreakdown:
    """Where the time of the last iterations went."""

    iterations: int  # closed, that this is about
    seconds: float  # from the opening of the first of them to the last one's closing
    combining_seconds: float  # of these, between an iteration's last answer and the next one's opening
    alone_seconds: float  # of these, while all but one machine had finished
    alone: str  # the machine that was most often waited for
    lease_seconds: float  # from claim to answer, over all accepted answers
    compute_seconds: float  # of these, spent computing
    accepted: int  # images
    late: int
    refused: int
    online: int  # machines
    busy: int  # of these, with units in hand
    open: int  # units that wait for a machine


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One machine, as it says itself what it is, and as the class has seen it."""

    id: int
    student: str
    machine: str  # what its owner calls it; "" for the only one
    device: str
    gpu: str
    gpu_memory_mb: int | None
    cores: int | None
    memory_mb: int | None
    images_per_second: float | None
    seconds_silent: float
    units_in_hand: int
    seconds_in_hand: float | None
    message: str
    units: int  # accepted, of the training that was asked for
    images: int

    @property
    def presence(self) -> Presence:
        return Presence.of(self.seconds_silent)

    @property
    def name(self) -> str:
        return f"{self.student} ({self.machine})" if self.machine else self.student


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the curves: means over a stretch of iterations."""

    iteration: int  # the last one of the stretch
    images_seen: int
    minutes: float  # of training: the sum of its iterations, without pauses
    g_loss: float
    d_loss: float
    d_real_accuracy: float
    d_fake_accuracy: float
    images_per_second: float
    workers: float


@contextmanager
def viewer(url: str) -> Generator[Connection]:
    """A connection that may read the views of `watch` and nothing else, whoever the URL's login is.

    Raises:
        StoreUnreachable, SchemaOutdated: as in `engine`.
    """
    with connect(url) as connection:
        connection.execute(
            f"SET ROLE {VIEWER_ROLE}; SET default_transaction_read_only = on; SET statement_timeout = '10s'"
        )
        yield connection


def _rows(
    connection: Connection, kind: type[T], query: str, values: Sequence[object] | Mapping[str, object] = ()
) -> list[T]:
    with connection.cursor(row_factory=class_row(kind)) as cursor:
        return cursor.execute(query.encode(), values).fetchall()


def trainings(connection: Connection) -> list[TrainingView]:
    """Every training, the newest first."""
    return _rows(
        connection,
        TrainingView,
        "SELECT id, name, state, plan, data_images, seconds_trained, ended_at FROM watch.trainings ORDER BY id DESC",
    )


def leaderboard(connection: Connection) -> list[LeaderboardRow]:
    """Every student, the most images first."""
    return _rows(
        connection,
        LeaderboardRow,
        "SELECT display_name, units, images, machines, images_per_second, seconds_silent FROM watch.leaderboard"
        " ORDER BY images DESC, display_name",
    )


def machines(connection: Connection, training_id: int = 0) -> list[MachineView]:
    """Every machine, those first that were heard of last; counted is its work for one training, or for all of them."""
    return _rows(
        connection,
        MachineView,
        "SELECT m.id, student, machine, device, gpu, gpu_memory_mb, cores, memory_mb, images_per_second, seconds_silent,"
        " units_in_hand, seconds_in_hand, message, coalesce(a.units, 0) AS units, coalesce(a.images, 0) AS images"
        " FROM watch.machines AS m LEFT JOIN ("
        "   SELECT machine_id, sum(units)::bigint AS units, sum(images)::bigint AS images FROM watch.answers"
        "   WHERE verdict = 'accepted' AND (%s = 0 OR training_id = %s) GROUP BY machine_id) AS a ON a.machine_id = m.id"
        " ORDER BY least(300, greatest(60, seconds_silent)), images DESC, student, machine",
        (training_id, training_id),
    )


def curve(connection: Connection, training_id: int, points: int = 400) -> list[Point]:
    """The whole training in at most so many points: the database takes the means, whatever the number of iterations."""
    return _rows(
        connection,
        Point,
        "WITH whole AS ("  # a stretch is so many iterations
        "   SELECT greatest(1, ceil(iteration / %s::float))::int AS width FROM watch.trainings WHERE id = %s"
        ") SELECT max(number) AS iteration, sum(sum(images)) OVER (ORDER BY number / width)::bigint AS images_seen,"
        " sum(sum(seconds)) OVER (ORDER BY number / width) / 60 AS minutes, avg(g_loss) AS g_loss, avg(d_loss) AS d_loss,"
        " avg(d_real_accuracy) AS d_real_accuracy, avg(d_fake_accuracy) AS d_fake_accuracy, avg(i.workers)::float AS workers,"
        " (sum(images) / greatest(0.001, sum(seconds)))::float AS images_per_second"
        " FROM watch.iterations AS i, whole WHERE i.training_id = %s AND closed_at IS NOT NULL AND contributions > 0"
        " GROUP BY number / width ORDER BY number / width",
        (points, training_id, training_id),
    )


def speeds(connection: Connection, training_id: int, limit: int = 60) -> list[float]:
    """Images per second of each of the latest iterations, from one closing to the next. Pauses don't count, nor does the
    training's first iteration, in which machines are still getting ready.
    """
    rows = connection.execute(
        "SELECT images / greatest(0.001, seconds + least(60, extract(epoch FROM opened_at - previous)))::float FROM ("
        "   SELECT *, lag(closed_at, 1, opened_at) OVER (ORDER BY number) AS previous FROM ("
        "     SELECT * FROM watch.iterations WHERE training_id = %s AND closed_at IS NOT NULL AND contributions > 0"
        "     AND number > 0 ORDER BY number DESC LIMIT %s) AS latest) AS closings ORDER BY number",
        (training_id, limit),
    ).fetchall()
    return [row[0] for row in rows]


def time_breakdown(connection: Connection, training_id: int) -> TimeBreakdown:
    """Where the time of the last iterations went."""
    (row,) = _rows(
        connection,
        TimeBreakdown,
        "WITH latest AS ("
        "   SELECT number, opened_at, closed_at, lead(opened_at) OVER (ORDER BY number) AS next_opened FROM ("
        "     SELECT * FROM watch.iterations WHERE training_id = %(id)s ORDER BY number DESC LIMIT %(limit)s + 1) AS newest"
        "), closed AS (SELECT * FROM latest WHERE closed_at IS NOT NULL"
        "), answers AS ("
        "   SELECT * FROM watch.answers WHERE training_id = %(id)s AND iteration IN (SELECT number FROM closed)"
        "), finished AS ("  # when each machine was done with its last units of an iteration
        "   SELECT iteration, machine_id, max(submitted_at) AS at FROM answers WHERE verdict = 'accepted' GROUP BY iteration, machine_id"
        "), ends AS ("
        "   SELECT iteration, machine_id, at, at - lead(at) OVER (PARTITION BY iteration ORDER BY at DESC) AS alone,"
        "     row_number() OVER (PARTITION BY iteration ORDER BY at DESC) AS place FROM finished"
        "), last AS (SELECT * FROM ends WHERE place = 1"
        "), awaited AS ("
        "   SELECT machine_id FROM last GROUP BY machine_id ORDER BY sum(alone) DESC NULLS LAST LIMIT 1"
        ") SELECT (SELECT count(*) FROM closed)::int AS iterations,"
        " coalesce((SELECT extract(epoch FROM max(closed_at) - min(opened_at)) FROM closed), 0)::float AS seconds,"
        " coalesce((SELECT sum(extract(epoch FROM next_opened - at)) FROM closed JOIN last ON iteration = number), 0)::float AS combining_seconds,"
        " coalesce((SELECT sum(extract(epoch FROM alone)) FROM last), 0)::float AS alone_seconds,"
        " coalesce((SELECT student || coalesce(' (' || nullif(machine, '') || ')', '') FROM watch.machines"
        "   WHERE id = (SELECT machine_id FROM awaited)), '') AS alone,"
        " coalesce((SELECT sum(extract(epoch FROM submitted_at - claimed_at)) FROM answers WHERE verdict = 'accepted'), 0)::float AS lease_seconds,"
        " coalesce((SELECT sum(seconds) FROM answers WHERE verdict = 'accepted' AND claimed_at IS NOT NULL), 0)::float AS compute_seconds,"
        " coalesce((SELECT sum(images) FROM answers WHERE verdict = 'accepted'), 0)::bigint AS accepted,"
        " coalesce((SELECT sum(images) FROM answers WHERE verdict = 'late'), 0)::bigint AS late,"
        " coalesce((SELECT sum(images) FROM answers WHERE verdict = 'refused'), 0)::bigint AS refused,"
        " (SELECT count(*) FROM watch.machines WHERE seconds_silent < 60)::int AS online,"
        " (SELECT count(*) FROM watch.machines WHERE seconds_silent < 60 AND units_in_hand > 0)::int AS busy,"
        " coalesce((SELECT open FROM watch.rounds WHERE training_id = %(id)s), 0)::int AS open",
        {"id": training_id, "limit": BREAKDOWN_ITERATIONS},
    )
    return row


def overview(connection: Connection, training_id: int) -> Overview:
    """How this training stands, without naming any computer of the instructor's."""
    row = connection.execute(
        "SELECT t.name, t.state, t.message, t.iteration, t.images, t.position, t.data_images, r.quorum, r.gathered, r.open, r.leased, r.seconds_left,"
        " (SELECT count(*) FROM watch.machines WHERE seconds_silent < 20), (SELECT machines FROM watch.waiting),"
        " coalesce((SELECT sum(images) / greatest(1, extract(epoch FROM now() - min(opened_at))) FROM watch.iterations"
        "   WHERE t.state = 'running' AND training_id = t.id AND images > 0 AND closed_at > now() - interval '1 minute'), 0)::float,"
        " (SELECT min(seconds_silent) FROM watch.coordinators WHERE training_id = t.id AND leads),"
        " (SELECT count(*) FROM watch.coordinators WHERE training_id = t.id AND NOT leads AND seconds_silent < 10)"
        " FROM watch.trainings AS t JOIN watch.rounds AS r ON r.training_id = t.id WHERE t.id = %s",
        (training_id,),
    ).fetchone()
    assert row is not None, "its id came from the table"
    last = _rows(
        connection,
        IterationRow,
        f"SELECT {ITERATION} FROM watch.iterations"
        " WHERE training_id = %s AND closed_at IS NOT NULL AND contributions > 0 ORDER BY number DESC LIMIT 1",
        (training_id,),
    )
    name, state, message, iteration, images, position, data_images, quorum, gathered, open_, leased = row[:11]
    seconds_left, online, waiting, speed, silent, standbys = row[11:]
    return Overview(
        name=name,
        state=TrainingState(state),
        message=message,
        iteration=iteration,
        images=images,
        position=position,
        data_images=data_images,
        images_per_second=speed,
        last=last[0] if last else None,
        quorum=quorum,
        seconds_left=seconds_left,
        gathered=gathered,
        open=open_,
        leased=leased,
        workers_online=online,
        workers_waiting=waiting,
        leader=None if silent is None else LEADER,
        leader_silent=silent or 0.0,
        standbys=("another coordinator",) * standbys,
    )


def events(connection: Connection, training_id: int, limit: int = 50) -> list[Event]:
    """The latest events, the newest first; without those about somebody's honesty."""
    return _rows(
        connection,
        Event,
        "SELECT id, training, at, kind, iteration, text FROM watch.events WHERE training_id = %s ORDER BY id DESC LIMIT %s",
        (training_id, limit),
    )


def sample_iterations(connection: Connection, training_id: int) -> list[int]:
    """The iterations of which there is a grid, in order."""
    rows = connection.execute(
        "SELECT iteration FROM watch.samples WHERE training_id = %s ORDER BY iteration", (training_id,)
    ).fetchall()
    return [row[0] for row in rows]


def sample(connection: Connection, training_id: int, iteration: int) -> bytes | None:
    """The grid of an iteration, as PNG; None if it is gone."""
    row = connection.execute(
        "SELECT png FROM watch.samples WHERE training_id = %s AND iteration = %s", (training_id, iteration), binary=True
    ).fetchone()
    return row[0] if row else None
