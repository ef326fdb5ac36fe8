"""A student's machine that claims and answers without computing: for tests of what the database makes of it."""

from uuid import uuid4

import psycopg

from gan_core.store import student
from gan_core.units import Lease, Measures, Verdict

MEASURES = Measures(images=16, seconds=1.0, g_loss=1.0, d_loss=2.0, d_real_accuracy=0.5, d_fake_accuracy=0.5)
PAYLOAD, TRAIL = bytes(100), b"a trail"


class Machine:
    """One of a student's machines. It asks a database, or a class server whose address is the student's."""

    def __init__(self, url: str, login: str, name: str) -> None:
        self.connection = student.reach(url.replace("//instructor@", f"//{login}@"))
        self.boot = uuid4()
        self.worker = student.register(self.connection, name, self.boot, "cpu", {})

    def claim(self) -> Lease | None:
        return student.claim(self.connection, self.worker, self.boot)

    def submit(self, lease: Lease, trail: bytes = TRAIL) -> Verdict:
        return student.submit(self.connection, lease.id, self.boot, MEASURES, PAYLOAD, trail).verdict

    def work(self) -> None:
        assert self.submit(self.claim()) is Verdict.ACCEPTED

    def beat(self) -> list[int]:
        return student.heartbeat(self.connection, self.worker, self.boot)


def streak(connection: psycopg.Connection, login: str, to: int | None = None) -> int:
    """A student's valid checks in a row; with `to`, from now on so many."""
    if to is not None:
        connection.execute("UPDATE classgan.students SET valid_streak = %s WHERE login = %s", (to, login))
    row = connection.execute("SELECT valid_streak FROM classgan.students WHERE login = %s", (login,)).fetchone()
    assert row is not None
    return row[0]
