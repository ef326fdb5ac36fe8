"""Trainings, their weights and checkpoints: what the coordinator reads and writes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from gan_core.errors import TrainingError
from gan_core.store.coordinator.events import KEPT_EVENTS
from gan_core.units import Shard, TrainingState

KEPT_WEIGHTS = 3  # iterations a worker may still be fetching
KEPT_CHECKPOINTS = 2
MILESTONES = 8  # older checkpoints that stay, evenly spread over the whole training
KEPT_ITERATIONS = 50  # whose units and leases stay: later answers are of no use to anybody
KEPT_SAMPLES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One training as the database has it."""

    id: int
    name: str
    plan: dict[str, Any]
    state: TrainingState
    message: str
    iteration: int
    images: int
    position: int
    data_fingerprint: str
    data_images: int
    data_source: str  # where its images come from, with the revision; "" before its first start
    plan_version: int
    given: dict[str, Any] | None  # the plan as `train` was last given it
    wanted: dict[str, Any] | None  # the plan from the next iteration on

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", TrainingState(self.state))


COLUMNS = (
    "id, name, plan, state, message, iteration, images, position, data_fingerprint, data_images, data_source,"
    " plan_version, given, wanted"
)


def find(connection: Connection, name: str) -> TrainingRow | None:
    with connection.cursor(row_factory=class_row(TrainingRow)) as cursor:
        return cursor.execute(f"SELECT {COLUMNS} FROM classgan.trainings WHERE name = %s", (name,)).fetchone()


def get(connection: Connection, name: str) -> TrainingRow:
    """The training of this name. Raises TrainingError with the names that exist."""
    row = find(connection, name)
    if row is None:
        known = ", ".join(r.name for r in every(connection)) or "none yet"
        raise TrainingError(f"There is no training called {name!r}. Trainings here: {known}.")
    return row


def every(connection: Connection) -> list[TrainingRow]:
    """All trainings, the newest first."""
    with connection.cursor(row_factory=class_row(TrainingRow)) as cursor:
        return cursor.execute(f"SELECT {COLUMNS} FROM classgan.trainings ORDER BY id DESC").fetchall()


def create(connection: Connection, name: str, plan: dict[str, Any]) -> TrainingRow:
    """The training of this name; made if there is none."""
    connection.execute(
        "INSERT INTO classgan.trainings (name, plan) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
        (name, Jsonb(plan)),
    )
    return get(connection, name)


def set_given(connection: Connection, training_id: int, plan: dict[str, Any]) -> None:
    """Remember the plan that `train` was started with."""
    connection.execute("UPDATE classgan.trainings SET given = %s WHERE id = %s", (Jsonb(plan), training_id))


def want_plan(connection: Connection, training_id: int, plan: dict[str, Any], author: str) -> None:
    """Let this validated plan hold from the next iteration on."""
    connection.execute("SELECT classgan.want_plan(%s, %s, %s)", (training_id, Jsonb(plan), author))


def change_plan(connection: Connection, training_id: int, plan: dict[str, Any], changes: str) -> None:
    """Make a wanted plan the plan, and write into the history who changed what."""
    connection.execute("SELECT classgan.change_plan(%s, %s, %s)", (training_id, Jsonb(plan), changes))


def set_step(connection: Connection, training_id: int, step_mb: int) -> None:
    """Memory that one step of its plan takes: machines that have less are leased nothing of it."""
    connection.execute("UPDATE classgan.trainings SET step_mb = %s WHERE id = %s", (step_mb, training_id))


def plans(connection: Connection, training_id: int) -> dict[int, dict[str, Any]]:
    """Each version of a training's plan by which units were handed out."""
    return dict(
        connection.execute("SELECT version, plan FROM classgan.plans WHERE training_id = %s", (training_id,)).fetchall()
    )


def control(
    connection: Connection, training_id: int, to: TrainingState, author: str, message: str = ""
) -> TrainingState:
    """Pause, resume (to QUEUED) or cancel a training; returns the state it was in. If that can't be, nothing changes."""
    row = connection.execute("SELECT classgan.control(%s, %s, %s, %s)", (training_id, to, author, message)).fetchone()
    assert row is not None
    return TrainingState(row[0])


def set_state(connection: Connection, training_id: int, state: TrainingState, message: str = "") -> None:
    """As the coordinator goes along. Cancelled is for good."""
    connection.execute(
        "UPDATE classgan.trainings SET state = %s, message = %s, updated_at = now() WHERE id = %s AND state <> 'cancelled'",
        (state, message, training_id),
    )


def interrupt_all(connection: Connection) -> None:
    """Trainings without a coordinator: those that the queue had started go back into it, the others are paused.

    Only for whoever has just ended every coordinator.
    """
    connection.execute(
        "UPDATE classgan.trainings SET updated_at = now(),"
        " state = CASE WHEN called_at IS NULL THEN 'paused' ELSE 'queued' END::classgan.training_state,"
        " message = CASE WHEN called_at IS NULL THEN 'interrupted: start `train` again with this name, and it continues'"
        " ELSE 'interrupted; goes on by itself' END WHERE state IN ('launching', 'running')"
    )


def set_message(connection: Connection, training_id: int, message: str) -> None:
    connection.execute(
        "UPDATE classgan.trainings SET message = %s, updated_at = now() WHERE id = %s", (message, training_id)
    )


def start(
    connection: Connection,
    training_id: int,
    fingerprint: str,
    images: int,
    payload_bytes: int,
    first_weights: bytes,
    source: str = "",
    shards: Sequence[Shard] = (),
) -> None:
    """Fix the data, store iteration 0's weights if there are none, and let workers claim: one transaction."""
    with connection.transaction():
        connection.execute(
            "UPDATE classgan.trainings SET data_fingerprint = %s, data_images = %s, data_source = %s, data_shards = %s,"
            " payload_bytes = %s, updated_at = now() WHERE id = %s",
            (fingerprint, images, source, Jsonb([asdict(shard) for shard in shards]), payload_bytes, training_id),
        )
        connection.execute(  # unless a person paused or cancelled it meanwhile
            "UPDATE classgan.trainings SET state = 'running', message = '' WHERE id = %s AND state IN ('queued', 'launching')",
            (training_id,),
        )
        connection.execute(
            "INSERT INTO classgan.weights (training_id, iteration, payload)"
            " SELECT id, 0, %b FROM classgan.trainings WHERE id = %s AND iteration = 0 ON CONFLICT DO NOTHING",
            (first_weights, training_id),
        )


def publish(
    connection: Connection,
    training_id: int,
    term: int,
    iteration: int,
    included: list[int],
    images: int,
    position: int,
    payload: bytes,
    change: bytes = b"",
    refused: str = "",
) -> None:
    """Close the iteration and announce the next weights: all of it or nothing. Repeated, it changes nothing.

    Args:
        term: of the lead; if it is over, nothing is published.
        change: what leads from the weights before to these, for those who have them.
        refused: why the iteration's contributions are taken back; `payload` then holds the old weights.

    Raises:
        LeadLost: another coordinator has moved this training on.
    """
    row = connection.execute("SELECT iteration FROM classgan.trainings WHERE id = %s", (training_id,)).fetchone()
    if row and row[0] == iteration + 1 and _weights_are(connection, training_id, iteration + 1, payload):
        return  # it went through, and the connection broke before the answer came
    connection.execute(
        "SELECT classgan.publish(%s, %s, %s, %s::bigint[], %s, %s, %b, %b, %s, %s)",
        (training_id, term, iteration, included, images, position, payload, change or None, KEPT_WEIGHTS, refused),
    )


def weights(connection: Connection, training_id: int, iteration: int) -> bytes:
    """The payload of the weights that were announced for this iteration, one of the last few."""
    row = connection.execute(
        "SELECT payload FROM classgan.weights WHERE training_id = %s AND iteration = %s",
        (training_id, iteration),
        binary=True,
    ).fetchone()
    if row is None:
        raise TrainingError(f"The weights of iteration {iteration} are gone from the database.")
    return row[0]


def _weights_are(connection: Connection, training_id: int, iteration: int, payload: bytes) -> bool:
    row = connection.execute(
        "SELECT payload = %b FROM classgan.weights WHERE training_id = %s AND iteration = %s",
        (payload, training_id, iteration),
    ).fetchone()
    return bool(row and row[0])


def save_checkpoint(
    connection: Connection, training_id: int, iteration: int, state: dict[str, int], payload: bytes
) -> None:
    """Store a state, then drop what it makes unnecessary: contributions it already holds, older checkpoints except for
    milestones, and the leases, units and events of long ago. The ledger and the losses stay.
    """
    with connection.transaction():
        connection.execute(
            "INSERT INTO classgan.checkpoints (training_id, iteration, state, payload) VALUES (%s, %s, %s, %b)"
            " ON CONFLICT (training_id, iteration) DO NOTHING",
            (training_id, iteration, Jsonb(state), payload),
        )
        connection.execute(
            "DELETE FROM classgan.gradients USING classgan.contributions AS c"
            " WHERE contribution_id = c.id AND c.training_id = %s AND c.iteration < %s",
            (training_id, iteration),
        )
        step = 1 << max(0, iteration // MILESTONES).bit_length()  # a power of two: what stays now was one before, too
        connection.execute(
            "DELETE FROM classgan.checkpoints WHERE training_id = %s AND iteration NOT IN"
            " (SELECT iteration FROM classgan.checkpoints WHERE training_id = %s ORDER BY iteration DESC LIMIT %s)"
            " AND iteration NOT IN (SELECT min(iteration) FROM classgan.checkpoints WHERE training_id = %s GROUP BY iteration / %s)",
            (training_id, training_id, KEPT_CHECKPOINTS, training_id, step),
        )
        for table in ("units", "leases"):  # in this order: units refer to leases
            connection.execute(
                f"DELETE FROM classgan.{table} WHERE training_id = %s AND iteration < %s",
                (training_id, iteration - KEPT_ITERATIONS),
            )
        connection.execute(
            "DELETE FROM classgan.events WHERE training_id = %s AND id < (SELECT min(id) FROM"
            " (SELECT id FROM classgan.events WHERE training_id = %s ORDER BY id DESC LIMIT %s) AS kept)",
            (training_id, training_id, KEPT_EVENTS),
        )


def latest_checkpoint(connection: Connection, training_id: int) -> tuple[int, dict[str, int], bytes] | None:
    """(iteration, counters, tensors) of the newest checkpoint."""
    return connection.execute(
        "SELECT iteration, state, payload FROM classgan.checkpoints WHERE training_id = %s ORDER BY iteration DESC LIMIT 1",
        (training_id,),
        binary=True,
    ).fetchone()


def save_sample(connection: Connection, training_id: int, iteration: int, png: bytes) -> None:
    """Keep a grid; once there are twice KEPT_SAMPLES, every other one goes, so that a long training keeps its whole story."""
    with connection.transaction():
        connection.execute(
            "INSERT INTO classgan.samples (training_id, iteration, png) VALUES (%s, %s, %b)"
            " ON CONFLICT (training_id, iteration) DO UPDATE SET png = excluded.png",
            (training_id, iteration, png),
        )
        connection.execute(
            "WITH numbered AS ("
            "   SELECT iteration, row_number() OVER (ORDER BY iteration) AS n, count(*) OVER () AS total"
            "   FROM classgan.samples WHERE training_id = %s"
            ") DELETE FROM classgan.samples USING numbered WHERE training_id = %s"
            " AND samples.iteration = numbered.iteration AND total >= 2 * %s AND n %% 2 = 0 AND n < total",
            (training_id, training_id, KEPT_SAMPLES),
        )


def samples(connection: Connection, training_id: int) -> list[tuple[int, bytes]]:
    """(iteration, PNG) of every grid, the oldest first."""
    return connection.execute(
        "SELECT iteration, png FROM classgan.samples WHERE training_id = %s ORDER BY iteration",
        (training_id,),
        binary=True,
    ).fetchall()
