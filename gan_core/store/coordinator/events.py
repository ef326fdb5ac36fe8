"""A training's history in sentences: what happened beyond the ordinary."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.units import EventKind

KEPT_EVENTS = 5_000  # of each training


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One sentence."""

    id: int
    training: str
    at: datetime  # aware
    kind: EventKind
    iteration: int
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", EventKind(self.kind))


def note(connection: Connection, training_id: int, iteration: int, kind: EventKind, text: str) -> None:
    connection.execute("SELECT classgan.note(%s, %s, %s, %s)", (training_id, iteration, kind, text))


def note_lost_shifts(connection: Connection, training: str, workers: Collection[str]) -> None:
    """Tell of these workers, as far as they had units of this training, that their shift was killed."""
    connection.execute(
        "SELECT classgan.note(t.id, t.iteration, %s, 'The shift of ' || classgan.called(w.id) ||"
        " ' ended without a word: it was killed, or its machine vanished. What it held goes to others.')"
        " FROM classgan.trainings AS t, classgan.workers AS w WHERE t.name = %s AND w.name = ANY(%s)"
        " AND EXISTS (SELECT FROM classgan.leases AS l WHERE l.worker_id = w.id AND l.training_id = t.id)",
        (EventKind.SILENT, training, list(workers)),
    )


def latest(connection: Connection, training: str = "", limit: int = 50, after: int = 0) -> list[Event]:
    """The latest events with an id beyond `after`, the oldest of them first; of one training, or of all."""
    with connection.cursor(row_factory=class_row(Event)) as cursor:
        return cursor.execute(
            "SELECT * FROM (SELECT e.id, t.name AS training, e.at, e.kind, e.iteration, e.text FROM classgan.events AS e"
            " JOIN classgan.trainings AS t ON t.id = e.training_id WHERE (%s = '' OR t.name = %s) AND e.id > %s"
            " ORDER BY e.id DESC LIMIT %s) AS latest ORDER BY id",
            (training, training, after, limit),
        ).fetchall()


def after(connection: Connection, training_id: int, after: int, limit: int, everything: bool) -> list[Event]:
    """Events with an id beyond `after`, the oldest first; without those about somebody's honesty, unless `everything`."""
    view = (
        "classgan.events AS e JOIN classgan.trainings AS t ON t.id = e.training_id"
        if everything
        else "watch.events AS e"
    )
    name = "t.name AS training" if everything else "e.training"
    with connection.cursor(row_factory=class_row(Event)) as cursor:
        return cursor.execute(
            f"SELECT e.id, {name}, e.at, e.kind, e.iteration, e.text FROM {view}"
            " WHERE e.training_id = %s AND e.id > %s ORDER BY e.id LIMIT %s",
            (training_id, after, limit),
        ).fetchall()


def count(connection: Connection, training_id: int, kind: EventKind, since_iteration: int) -> int:
    """How often this happened from an iteration on."""
    row = connection.execute(
        "SELECT count(*) FROM classgan.events WHERE training_id = %s AND kind = %s AND iteration >= %s",
        (training_id, kind, since_iteration),
    ).fetchone()
    return row[0] if row else 0
