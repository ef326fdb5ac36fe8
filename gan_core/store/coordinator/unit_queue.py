"""Units and contributions as the coordinator sees them: create, watch, collect."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.units import WorkUnit

LATEST = 20  # iterations from which is learnt when contributions come


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An accepted contribution, without its tensors."""

    id: int
    first_ordinal: int  # its place in the sum
    images: int
    worker: str
    student: str  # the login


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """An iteration's units, and who could still compute."""

    open: int
    leased: int
    done: int
    frontier: int | None  # lowest ordinal that isn't done: everything before it has arrived
    workers_online: int  # heard of within 20 seconds
    is_over: bool = False  # it was to close at a moment that has passed


def create_units(
    connection: Connection,
    training_id: int,
    iteration: int,
    quorum: int,
    position: int,
    units: Sequence[WorkUnit],
    target_seconds: float = 0,
    is_boxed: bool = False,
) -> None:
    """Open an iteration with its units. May be repeated: a second time changes nothing.

    Args:
        quorum: images that close it; of one that closes in time, those that are expected.
        position: of the sampler after these units.
        target_seconds: that leases are sized for; 0 leaves it to the plan.
        is_boxed: it closes after so many seconds, with what was computed by then.
    """
    connection.execute(
        "SELECT classgan.create_units(%s, %s, %s, %s, %s, %s::integer[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[], %s::bigint[], %s)",
        (
            training_id,
            iteration,
            quorum,
            position,
            target_seconds,
            [u.epoch for u in units],
            [u.seed for u in units],
            [u.images for u in units],
            [index for u in units for index in u.indices],
            [u.reach for u in units],
            [u.position for u in units],
            is_boxed,
        ),
    )


def left_over(connection: Connection, training_id: int, iteration: int) -> list[WorkUnit]:
    """The units that this iteration closed without, so that another one learns from their images.

    None of an iteration that was undone, and none that spoiled whoever computed them.
    """
    return [
        WorkUnit(ordinal=place, epoch=epoch, position=position, indices=tuple(indices), seed=seed, reach=reach)
        for place, (epoch, position, indices, seed, reach) in enumerate(
            connection.execute(
                "SELECT u.epoch, u.position, u.indices, u.seed, u.reach FROM classgan.units AS u"
                " JOIN classgan.iterations AS i ON i.training_id = u.training_id AND i.number = u.iteration"
                " WHERE u.training_id = %s AND u.iteration = %s AND u.state = 'stale' AND NOT u.given_up AND i.images > 0"
                " ORDER BY u.ordinal",
                (training_id, iteration),
            ).fetchall()
        )
    ]


def arrivals(connection: Connection, training_id: int, iteration: int) -> list[Arrival]:
    """The accepted contributions of an iteration, in the order in which they are added up."""
    with connection.cursor(row_factory=class_row(Arrival)) as cursor:
        return cursor.execute(
            "SELECT c.id, c.first_ordinal, c.images, w.name AS worker, s.login AS student FROM classgan.contributions AS c"
            " JOIN classgan.workers AS w ON w.id = c.worker_id JOIN classgan.students AS s ON s.id = w.student_id"
            " WHERE c.training_id = %s AND c.iteration = %s AND c.verdict = 'accepted' ORDER BY c.first_ordinal",
            (training_id, iteration),
        ).fetchall()


def payload(connection: Connection, contribution_id: int) -> bytes | None:
    """The tensors of a contribution; None when they were dropped."""
    row = connection.execute(
        "SELECT payload FROM classgan.gradients WHERE contribution_id = %s",
        (contribution_id,),
        binary=True,
    ).fetchone()
    return row[0] if row else None


def refuse(connection: Connection, contribution_id: int, reason: str) -> None:
    """Take an accepted contribution back; its units go to someone else, or are given up if every answer proves unusable."""
    connection.execute("SELECT classgan.refuse(%s, %s)", (contribution_id, reason))


def expire_leases(connection: Connection) -> int:
    """Free the units of run-out leases, and those that nobody holds; returns how many leases ran out."""
    connection.execute("SELECT classgan.reopen_orphans()")
    row = connection.execute("SELECT classgan.expire_leases()").fetchone()
    return row[0] if row else 0


RUNAWAY_SECONDS = 180.0  # longer than any honest statement: a slow upload takes its time before its statement begins


def end_runaway_sessions(connection: Connection) -> int:
    """End students' sessions that keep the server busy for longer than RUNAWAY_SECONDS; returns how many."""
    row = connection.execute("SELECT classgan.end_runaway_sessions(%s)", (RUNAWAY_SECONDS,)).fetchone()
    return row[0] if row else 0


def progress(connection: Connection, training_id: int, iteration: int) -> Progress:
    with connection.cursor(row_factory=class_row(Progress)) as cursor:
        row = cursor.execute(
            "SELECT count(*) FILTER (WHERE state = 'open')::int AS open, count(*) FILTER (WHERE state = 'leased')::int AS leased,"
            " count(*) FILTER (WHERE state = 'done')::int AS done, min(ordinal) FILTER (WHERE state <> 'done') AS frontier,"
            " (SELECT count(*) FROM classgan.workers WHERE last_seen > now() - interval '20 seconds')::int AS workers_online,"
            " coalesce(classgan.seconds_left(%s, %s) <= 0, false) AS is_over"
            " FROM classgan.units WHERE training_id = %s AND iteration = %s",
            (training_id, iteration, training_id, iteration),
        ).fetchone()
    assert row is not None
    return row


def arrival_seconds(connection: Connection, training_id: int, iterations: int = LATEST) -> list[float]:
    """Seconds from opening to arrival of each contribution of the latest iterations: what a deadline is learnt from.

    Where iterations close in time, those that came too late count, too: or it would be learnt from the quick ones alone.
    """
    return [
        row[0]
        for row in connection.execute(
            "SELECT extract(epoch FROM c.submitted_at - coalesce(i.closes_at - make_interval(secs => i.target_seconds), i.opened_at))::float FROM classgan.contributions AS c"
            " JOIN classgan.iterations AS i ON i.training_id = c.training_id AND i.number = c.iteration"
            " WHERE c.training_id = %s AND (c.verdict = 'accepted' OR (c.verdict = 'late' AND i.closes_at IS NOT NULL)) AND i.closed_at IS NOT NULL"
            " AND i.number > (SELECT iteration FROM classgan.trainings WHERE id = %s) - %s",
            (training_id, training_id, iterations),
        ).fetchall()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An iteration that was opened: what later looks at it must go by, whatever the plan says by then."""

    quorum: int  # images
    position: int  # of the sampler after its units
    seconds: float | None = None  # after which it closes with what is there; None: it waits for its images


def opened(connection: Connection, training_id: int, iteration: int) -> Opened | None:
    """This iteration, if it was opened before."""
    with connection.cursor(row_factory=class_row(Opened)) as cursor:
        return cursor.execute(
            "SELECT quorum, position, CASE WHEN closes_at IS NOT NULL THEN target_seconds END AS seconds"
            " FROM classgan.iterations WHERE training_id = %s AND number = %s",
            (training_id, iteration),
        ).fetchone()


def extend(connection: Connection, training_id: int, iteration: int) -> None:
    """Give a round in which nothing was computed its time once more, from now on."""
    connection.execute(
        "UPDATE classgan.iterations SET closes_at = now() + make_interval(secs => target_seconds)"
        " WHERE training_id = %s AND number = %s AND closes_at <= now()",
        (training_id, iteration),
    )
    connection.execute("SELECT pg_notify('classgan_work', '')")


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured of a training's machines."""

    speeds: list[float | None]  # images per second of each that is at work now; None where nothing was measured yet
    # Seconds of an iteration in which the usual one doesn't compute; None where no iteration has closed in time.
    lost: float | None = None


def pace(connection: Connection, training_id: int) -> Pace:
    """How fast the machines are that are at work for this training now, and what the last five iterations cost beside computing.
    Not the first one: there machines had too little to do, since nobody knew how fast they are.
    """
    speeds = [
        row[0]
        for row in connection.execute(
            "SELECT images_per_second FROM classgan.workers AS w"
            " LEFT JOIN classgan.placements AS p ON p.worker_id = w.id AND p.ended_at IS NULL"
            " WHERE last_seen > now() - interval '20 seconds' AND drained = '' AND coalesce(p.training_id, %s) = %s",
            (training_id, training_id),
        ).fetchall()
    ]
    row = connection.execute(
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY greatest(0, lasted - computed)) FROM ("
        "   SELECT extract(epoch FROM closed_at - closes_at)::float + target_seconds AS lasted, sum(seconds) AS computed"
        "   FROM (SELECT * FROM classgan.iterations WHERE training_id = %s AND number > 0 AND closed_at IS NOT NULL ORDER BY number DESC LIMIT 5) AS i"
        "   JOIN classgan.contributions AS c ON c.training_id = i.training_id AND c.iteration = i.number"
        "   WHERE closes_at IS NOT NULL AND verdict IN ('accepted', 'second')"
        "   GROUP BY i.number, closed_at, closes_at, target_seconds, worker_id) AS each",
        (training_id,),
    ).fetchone()
    return Pace(speeds, row[0] if row else None)


def silent_seconds(connection: Connection) -> dict[UUID, float]:
    """Seconds since the last heartbeat of each machine, by the Prefect run of its latest start."""
    return dict(
        connection.execute(
            "SELECT run_id, extract(epoch FROM now() - max(last_seen))::float FROM classgan.workers"
            " WHERE run_id IS NOT NULL GROUP BY run_id"  # whose run it is, is each machine's own word: the one last heard of counts
        ).fetchall()
    )


def up_seconds(connection: Connection) -> float:
    """Seconds since the database was started."""
    row = connection.execute("SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float").fetchone()
    return row[0] if row else 0.0


def positions(connection: Connection, training_id: int, first: int, last: int) -> dict[int, int]:
    """The sampler's position after each of these iterations (`last` excluded)."""
    return dict(
        connection.execute(
            "SELECT number, position FROM classgan.iterations WHERE training_id = %s AND number >= %s AND number < %s",
            (training_id, first, last),
        ).fetchall()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A contribution that entered the weights, by what it was computed from."""

    images: int
    slices: list[list[int]] | None  # position, images and seed of each of its units; None: nobody wrote it down


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """An iteration that is over, for whoever computes it again."""

    number: int
    position: int  # of the sampler after it
    plan_version: int | None


def closed(connection: Connection, training_id: int, before: int) -> list[Closed]:
    """The iterations before this one, in order."""
    with connection.cursor(row_factory=class_row(Closed)) as cursor:
        return cursor.execute(
            "SELECT number, position, plan_version FROM classgan.iterations WHERE training_id = %s AND number < %s ORDER BY number",
            (training_id, before),
        ).fetchall()


def computed(connection: Connection, training_id: int, iteration: int) -> list[Computed]:
    """What entered the weights of an iteration, in the order of the sum."""
    with connection.cursor(row_factory=class_row(Computed)) as cursor:
        return cursor.execute(
            "SELECT images, slices FROM classgan.contributions"
            " WHERE training_id = %s AND iteration = %s AND verdict = 'accepted' ORDER BY first_ordinal",
            (training_id, iteration),
        ).fetchall()


def drop_spent_gradients(connection: Connection) -> int:
    """Drop tensors whose effect a checkpoint holds, or whose training is over; returns how many. The ledger stays."""
    return connection.execute(
        "DELETE FROM classgan.gradients USING classgan.contributions AS c, classgan.trainings AS t"
        " WHERE contribution_id = c.id AND t.id = c.training_id AND (t.state IN ('succeeded', 'cancelled') OR c.iteration <"
        " (SELECT max(iteration) FROM classgan.checkpoints AS k WHERE k.training_id = t.id))",
    ).rowcount
