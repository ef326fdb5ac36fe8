"""PostgreSQL as the students' requests see it: few connections for all of them, each asked in one student's name."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar
from uuid import UUID

import anyio
import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from gan_core.errors import StoreError, StoreUnreachable
from gan_core.store.engine import SETTINGS, translated
from gan_core.store.migrate import STUDENT_ROLE

CONNECTIONS = 16  # for all students together
LARGE = 8  # of them at most carry contributions: a heartbeat never waits for megabytes
WEIGHTS = 2  # of them at most read weights: what the whole class waits for never waits for what a class hands in
EACH = 4  # of one student's requests at once, and as many that carry a contribution: no flood takes them all
WAIT_SECONDS = 10.0  # for a connection
AWAY_SECONDS = 1.0  # for which nobody asks again once there was none
STATEMENT_SECONDS = 60

T = TypeVar("T")


class Database:
    """Asks in threads. Whatever is asked runs as a student: with their rights, and under their name.

    Args:
        url: of the class, as the instructor, who owns the tables; PostgreSQL believes nobody else whose request it is.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: ConnectionPool[psycopg.Connection] = ConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS,
            open=False,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
            check=ConnectionPool.check_connection,
            kwargs={
                **SETTINGS,
                "application_name": "classgan door",
                "options": f"-c statement_timeout={STATEMENT_SECONDS}s -c idle_in_transaction_session_timeout=60s",
            },
        )
        self._threads = anyio.CapacityLimiter(CONNECTIONS)
        self._large = anyio.CapacityLimiter(LARGE)
        self._weights = anyio.CapacityLimiter(WEIGHTS)
        self._asking: dict[tuple[str, bool], anyio.CapacityLimiter] = {}  # by login, and whether megabytes come along
        self._away_until = 0.0

    def open(self) -> None:
        self._pool.open()

    def close(self) -> None:
        self._pool.close(timeout=0)

    async def ask(
        self, login: str, work: Callable[[psycopg.Connection], T], *, is_large: bool = False, for_all: bool = False
    ) -> T:
        """What `work` returns, in one transaction in this student's name.

        Args:
            is_large: it carries megabytes of this student's.
            for_all: it reads megabytes for which the whole class waits. So it waits neither for what is handed in nor for
                the student's other requests, and the caller sees to it that each student asks for one at a time.

        Raises:
            StoreUnreachable: the database doesn't answer.
            StoreError: it refuses.
        """

        def asked() -> T:
            with translated(self._url), self._connection() as connection:
                connection.execute(
                    "SELECT set_config('classgan.student', %s, true), set_config('role', %s, true)",
                    (login, STUDENT_ROLE),
                )
                return work(connection)

        # A heartbeat doesn't wait for what the student's other machines hand in, either.
        own = self._asking.setdefault((login, is_large), anyio.CapacityLimiter(EACH))
        mine = nullcontext() if for_all else own
        place = self._weights if for_all else self._large if is_large else nullcontext()
        async with mine, place:
            return await anyio.to_thread.run_sync(asked, limiter=self._threads)

    async def renew(self, heartbeats: Sequence[tuple[str, int, UUID]]) -> list[list[int] | Exception]:
        """For each login, worker and start of it: the leases that it still holds, or why it was refused.

        Raises:
            StoreUnreachable: the database doesn't answer.
        """

        def renewed() -> list[list[int] | Exception]:
            with self._connection() as connection:
                connection.autocommit = True
                try:
                    return [self._renewed(connection, *heartbeat) for heartbeat in heartbeats]
                finally:
                    with suppress(psycopg.Error):  # of a connection that has broken
                        connection.autocommit = False

        return await anyio.to_thread.run_sync(renewed, limiter=self._threads)

    def _renewed(self, connection: psycopg.Connection, login: str, worker: int, boot: UUID) -> list[int] | Exception:
        try:
            with translated(self._url):
                row = connection.execute("SELECT classgan.heartbeat(%s, %s, %s)", (login, worker, boot)).fetchone()
        except StoreUnreachable:
            raise
        except StoreError as exc:  # of this one alone
            return exc
        return row[0] if row else []

    async def why_out(self, login: str, secret_hash: str) -> str:
        """Why somebody with this secret is suspended; "" if they aren't, it isn't theirs, or nobody can be asked now."""

        def asked() -> str:
            with self._connection() as connection:
                row = connection.execute(
                    "SELECT suspended FROM classgan.students WHERE login = %s AND secret_hash = %s",
                    (login, secret_hash),
                ).fetchone()
                return row[0] if row else ""

        with suppress(psycopg.Error, StoreUnreachable):
            return await anyio.to_thread.run_sync(asked, limiter=self._threads)
        return ""

    @contextmanager
    def _connection(self) -> Generator[psycopg.Connection]:
        """One of the pool's. While the database is away, threads don't wait for it one after the other."""
        if time.monotonic() < self._away_until:
            raise StoreUnreachable("The database is away.")
        try:
            with self._pool.connection() as connection:
                yield connection
        except PoolTimeout as exc:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise StoreUnreachable("The database is away, or all connections to it are in use.") from exc
