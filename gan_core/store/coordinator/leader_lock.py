"""Who leads a training: one coordinator, by a lock that ends with its connection. Others stand by."""

import os
import platform
from uuid import UUID

from psycopg import Connection

LOCK_CLASS = 0x67616E  # "gan": our advisory locks are (this, training id)


def place() -> str:
    """This process, as a person finds it."""
    return f"{platform.node()}, process {os.getpid()}"


def take(connection: Connection, training_id: int, me: UUID, term: int | None) -> int | None:
    """Lead from now on, as long as the connection lives, unless somebody else does. Shows this process as standing by if so.

    Args:
        term: of this coordinator's lead before its connection broke; None for a new one.

    Returns:
        the term: another one than given if somebody led meanwhile. None if somebody leads now.
    """
    row = connection.execute(
        "SELECT classgan.take_lead(%s, %s, %s, %s, %s)", (training_id, LOCK_CLASS, me, place(), term)
    ).fetchone()
    assert row is not None
    return row[0]


def depose_silent(connection: Connection, training_id: int, seconds: float) -> bool:
    """Cut off a leader that nothing was heard of for this long. True if there was one."""
    row = connection.execute("SELECT classgan.depose(%s, %s, %s)", (training_id, LOCK_CLASS, seconds)).fetchone()
    return bool(row and row[0])


def beat(connection: Connection, me: UUID) -> None:
    """Show that this coordinator lives."""
    connection.execute("UPDATE classgan.coordinators SET last_seen = now() WHERE id = %s", (me,))


def leave(connection: Connection, me: UUID) -> None:
    """An orderly end: whoever comes next has taken nothing over."""
    connection.execute("DELETE FROM classgan.coordinators WHERE id = %s", (me,))
