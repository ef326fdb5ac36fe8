"""What a student's machine may ask of the class: a handful of functions. Identity is the login, never an argument.

The machine asks the class server over HTTPS (`Door`), which calls the same function with a connection to PostgreSQL in the
student's name. On the instructor's own machine it asks PostgreSQL itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from gan_core.errors import StoreError
from gan_core.store.door import Call, Door
from gan_core.store.engine import Reconnecting, connect, wait_for_notice
from gan_core.units import PAYLOAD_FORMAT, LeaderboardRow, Lease, Measures, Shard, Submission, Verdict, WorkUnit

P = ParamSpec("P")
T = TypeVar("T")
Class = Connection | Door

CALLS: dict[str, Call[Any]] = {}  # what a machine may ask as JSON, by name


def reach(url: str) -> Class:
    """The class at this address: a class server's (https://), or a database's. Close it when done.

    Raises:
        StoreUnreachable: nobody answers there.
        StoreError: this login isn't let in.
    """
    return Door(url) if url.startswith("https://") else connect(url)


def linked(
    url: str, should_stop: Callable[[], bool], on_connect: Callable[[Class], None] = lambda c: None
) -> Reconnecting[Class]:
    """A connection to the class at this address that comes back."""
    return Reconnecting(url, reach, should_stop=should_stop, on_connect=on_connect)


def asked(work: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Class, P], T]:
    """Lets a class server be asked what PostgreSQL answers: with the same arguments, for the same answer."""
    call = Call(work)
    CALLS[call.name] = call

    @wraps(work)
    def ask(home: Class, *args: P.args, **kwargs: P.kwargs) -> T:
        return home.call(call, *args, **kwargs) if isinstance(home, Door) else work(home, *args, **kwargs)

    return ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a worker must know of a training before it computes."""

    name: str
    plan: dict[str, Any]
    plan_version: int
    data_fingerprint: str
    data_images: int
    data_source: str  # with the revision; "" while no coordinator has opened it
    data_shards: list[dict[str, Any]]  # images and fingerprint of each; none for data that lies on every machine
    step_mb: int = 0  # memory that one step takes; 0 while no coordinator has opened it

    @property
    def shards(self) -> tuple[Shard, ...]:
        return tuple(Shard(**shard) for shard in self.data_shards)


@asked
def register(
    connection: Connection, name: str, boot: UUID, device: str, hardware: dict[str, Any], run: UUID | None = None
) -> int:
    """Make this machine known; returns its worker id. `run` is the Prefect run that it works in."""
    row = connection.execute(
        "SELECT student.register(%s, %s, %s, %s, %s, %s)", (name, boot, device, Jsonb(hardware), run, PAYLOAD_FORMAT)
    ).fetchone()
    assert row is not None
    return row[0]


@asked
def change_device(connection: Connection, worker: int, boot: UUID, lease: int, device: str, why: str) -> None:
    """Say that this machine goes on with another device than it was registered with, and why the other isn't used, in the middle of a lease."""
    connection.execute("SELECT student.change_device(%s, %s, %s, %s, %s)", (worker, boot, lease, device, why))


@asked
def claim(connection: Connection, worker: int, boot: UUID, training: int = 0, images: int = 0) -> Lease | None:
    """Lease the next units, or None when there is nothing to do.

    Args:
        images: of `training`, from the first on, that this machine has; matters where data is fetched in shards.
    """
    rows = connection.execute(
        "SELECT lease_id, leased_until, training_id, iteration, plan_version, ordinal, epoch, indices, seed, seconds_left"
        " FROM student.claim(%s, %s, %s, %s)",
        (worker, boot, training, images),
        binary=True,
    ).fetchall()
    if not rows:
        return None
    units = tuple(WorkUnit(ordinal=r[5], epoch=r[6], indices=tuple(r[7]), seed=r[8]) for r in rows)
    lease_id, until, training_id, iteration, version = rows[0][:5]
    return Lease(
        id=lease_id,
        training_id=training_id,
        iteration=iteration,
        plan_version=version,
        units=units,
        leased_until=until,
        seconds_left=rows[0][9],
    )


@asked
def read_training(connection: Connection, training_id: int, version: int | None = None) -> Assignment:
    """What to compute with: the plan in the version of a lease, else the present one."""
    with connection.cursor(row_factory=class_row(Assignment)) as cursor:
        row = cursor.execute(
            "SELECT name, plan, plan_version, data_fingerprint, data_images, data_source, data_shards, step_mb FROM student.read_training(%s, %s)",
            (training_id, version),
        ).fetchone()
    if row is None:
        raise StoreError(f"There is no training {training_id}.")
    return row


@asked
def trainings(connection: Connection) -> dict[int, str]:
    """Names of the trainings that want workers now, by id."""
    return dict(connection.execute("SELECT id, name FROM student.trainings()").fetchall())


def weights(
    home: Class, training_id: int, iteration: int, after: Callable[[bytes], bytes] | None = None
) -> bytes | None:
    """The payload of these weights; None when the training has moved on and they are gone.

    Args:
        after: makes it of a change; given by who has the weights of the iteration before. Without a line between, nothing
            is saved by it.
    """
    if isinstance(home, Door):
        return home.weights(training_id, iteration, after)
    row = home.execute("SELECT student.weights(%s, %s)", (training_id, iteration), binary=True).fetchone()
    return row[0] if row else None


def weights_change(connection: Connection, training_id: int, iteration: int) -> bytes | None:
    """What leads from the weights before to these; None if the training announces no changes."""
    row = connection.execute("SELECT student.weights_change(%s, %s)", (training_id, iteration), binary=True).fetchone()
    return row[0] if row else None


def upload_bytes(connection: Connection, lease_id: int, boot: UUID) -> int | None:
    """How long this lease's payload must be: None if it isn't this student's, 0 if it was answered already."""
    row = connection.execute("SELECT student.upload_bytes(%s, %s)", (lease_id, boot)).fetchone()
    return row[0] if row else None


def submit(
    home: Class, lease_id: int, boot: UUID, measures: Measures, payload: bytes, trail: bytes = b""
) -> Submission:
    """Hand a finished lease in. May be repeated: a second time changes nothing.

    Args:
        measures: their images are fewer than the lease's where the round was about to close.
        trail: of the way to it (`policies.trails`), so that it can be compared with another machine's.
    """
    if isinstance(home, Door):
        return home.submit(lease_id, boot, measures, payload, trail)
    row = home.execute(
        "SELECT verdict, reason FROM student.submit(%s, %s, %s, %s, %s, %s, %s, %b, %b, %s)",
        (
            lease_id,
            boot,
            measures.seconds,
            measures.g_loss,
            measures.d_loss,
            measures.d_real_accuracy,
            measures.d_fake_accuracy,
            payload,
            trail,
            measures.images,
        ),
    ).fetchone()
    assert row is not None
    return Submission(verdict=Verdict(row[0]), reason=row[1])


def listen(home: Class) -> None:
    """From now on `wait_for_work` hears of new work."""
    if not isinstance(home, Door):
        home.execute("LISTEN classgan_work")


def wait_for_work(home: Class, seconds: float) -> None:
    """Until there may be work, at most about so many seconds."""
    if isinstance(home, Door):
        home.wait(seconds)
    else:
        wait_for_notice(home, seconds)


@asked
def heartbeat(connection: Connection, worker: int, boot: UUID) -> list[int]:
    """Renew this start's leases; returns those that are still held. Computing any other is wasted."""
    row = connection.execute("SELECT student.heartbeat(%s, %s)", (worker, boot)).fetchone()
    return row[0] if row else []


@asked
def release(connection: Connection, lease_id: int, boot: UUID, reason: str, spoiled: bool = False) -> None:
    """Give a lease back unfinished; spoiled, if it was computed and the numbers were not finite."""
    connection.execute("SELECT student.release(%s, %s, %s, %s)", (lease_id, boot, reason, spoiled))


@dataclass(frozen=True, slots=True, kw_only=True)
class MyMachine:
    """One of the student's own machines."""

    machine: str
    device: str
    seconds_silent: float
    images_per_second: float | None
    units: int  # credited
    images: int
    late: int  # answers
    refused: int
    message: str  # what the class last said to it; "" if all is well


@asked
def my_machines(connection: Connection) -> list[MyMachine]:
    """Every machine of this login, the latest first."""
    with connection.cursor(row_factory=class_row(MyMachine)) as cursor:
        return cursor.execute("SELECT * FROM student.my_machines()").fetchall()


@asked
def leaderboard(connection: Connection) -> list[LeaderboardRow]:
    """Every student, the most images first, as any student sees it."""
    with connection.cursor(row_factory=class_row(LeaderboardRow)) as cursor:
        return cursor.execute("SELECT * FROM student.leaderboard()").fetchall()


@asked
def my_credit(connection: Connection) -> tuple[int, int, float]:
    """Units, images and seconds of work that were accepted so far."""
    row = connection.execute("SELECT units, images, seconds FROM student.my_credit()").fetchone()
    return row if row else (0, 0, 0.0)


@asked
def be_named(connection: Connection, named: bool) -> None:
    """Whether the own name may stand among the contributors of a model that is shown to the world."""
    connection.execute("SELECT student.be_named(%s)", (named,))


@asked
def clock(connection: Connection) -> datetime:
    """The time by which the class judges leases."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return row[0]
