"""Connections to PostgreSQL that reconnect by themselves, and its errors translated into ours."""

import logging
import random
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType, TracebackType
from typing import Any, Generic, Self, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from gan_core.errors import LeadLost, SchemaOutdated, StoreError, StoreUnreachable

log = logging.getLogger("classgan.store")
T = TypeVar("T")
C = TypeVar("C")

CONNECT_SECONDS = 10  # a server that needs longer to say hello counts as away
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "classgan",
        # A vanished server is noticed within a minute instead of hours.
        "keepalives_idle": 20,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }
)
LONGEST_PAUSE = 10.0  # between attempts; a class wants to go on soon after the server is back


def place(url: str) -> str:
    """Host and database of a URL, for messages: never its password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as exc:
        raise StoreError(
            f"This is not a PostgreSQL address: {url.split('@')[-1]!r}. It looks like postgresql://user:password@host:5432/name."
        ) from exc
    return f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"


@contextmanager
def translated(url: str) -> Generator[None]:
    """Driver errors become ours: those that pass by themselves StoreUnreachable, the others StoreError."""
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction) as exc:
        raise SchemaOutdated(
            f"The database at {place(url)} has no tables of this version: {_first_line(exc)}. Run `classgan migrate`."
        ) from exc
    except psycopg.Error as exc:
        if exc.sqlstate == LEAD_LOST:
            raise LeadLost(f"{_first_line(exc)}.") from exc
        if _passes(exc):
            raise StoreUnreachable(f"The database at {place(url)} does not answer: {_first_line(exc)}.") from exc
        raise StoreError(f"The database at {place(url)} refused: {_first_line(exc)}.") from exc


# What a login that isn't accepted is told, and what an address that isn't the class's shows.
PERMANENT = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "certificate verify failed",
    "does not match host name",
)
LEAD_LOST = "CG001"  # raised by classgan.publish

# SQLSTATE classes and codes of what is over sooner or later: connection trouble, no room, shutdown and start, deadlock.
PASSING = ("08", "53", "57P", "58", "40P01", "40001")


def _passes(exc: psycopg.Error) -> bool:
    """Whether asking again later may help."""
    if exc.sqlstate is not None:
        return exc.sqlstate.startswith(PASSING)
    if not isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    # While connecting, the driver gives no code: a wrong password or name stays wrong, everything else may pass.
    return not any(text in str(exc) for text in PERMANENT)


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0].rstrip(".")


class Connection(psycopg.Connection):
    """One that says in our words what went wrong while it was used as a context manager."""

    url = ""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        if isinstance(exc_val, psycopg.Error):
            with translated(self.url):
                raise exc_val


def connect(url: str) -> psycopg.Connection:
    """A connection where each statement is its own transaction, unless `conn.transaction()` says otherwise.

    Raises:
        StoreUnreachable: nobody answers at this address.
        StoreError: as a context manager, also what the database refuses while it is used.
    """
    with translated(url):
        connection = Connection.connect(url, autocommit=True, **SETTINGS)
    connection.url = url
    return connection


class Reconnecting(Generic[C]):
    """A connection that comes back.

    Each call is repeated until it went through, so it must be one transaction that does no harm when done twice.

    Args:
        opened: makes a connection to this address; a fresh one is made after each StoreUnreachable that came of the
            connection. One over which somebody answered is kept: to whoever has too much to do, a new one is more of it.
    """

    def __init__(
        self,
        url: str,
        opened: Callable[[str], C],
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_connect: Callable[[C], object] = lambda c: None,
    ) -> None:
        self.url = url
        self._opened: Callable[[str], Any] = opened
        self._should_stop = should_stop
        self._on_connect = on_connect
        self._connection: Any = None

    @property
    def connection(self) -> C:
        """The live connection; made now if there is none."""
        if self._connection is None or self._connection.closed:
            fresh = self._opened(self.url)
            try:
                with translated(self.url):
                    self._on_connect(fresh)
            except BaseException:
                fresh.close()
                raise
            self._connection = fresh
        return self._connection

    def call(self, work: Callable[[C], T]) -> T:
        """What `work` returns, as soon as the class lets it through, asked no sooner than it wants to be. Says once that it
        waits, and once that it goes on.
        """
        pause, waiting_since = 0.2, 0.0
        while True:
            try:
                with translated(self.url):
                    result = work(self.connection)
            except StoreUnreachable as exc:
                if not exc.answered:
                    self.close()
                if self._should_stop():
                    raise
                if not waiting_since:
                    waiting_since = time.monotonic()
                    log.warning("%s Waiting for it; nothing is lost.", exc)
                self.pause(exc.retry_after + pause * random.uniform(0.5, 1.0))  # spread: they don't come back together
                pause = min(LONGEST_PAUSE, pause * 1.7)
                continue
            if waiting_since:
                log.warning("It is back after %.0f s.", time.monotonic() - waiting_since)
            return result

    def pause(self, seconds: float) -> None:
        """Before the next attempt of a call."""
        time.sleep(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


class Link(Reconnecting[psycopg.Connection]):
    """A connection to PostgreSQL that comes back."""

    def __init__(
        self,
        url: str,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_connect: Callable[[psycopg.Connection], object] = lambda c: None,
    ) -> None:
        super().__init__(url, connect, should_stop=should_stop, on_connect=on_connect)


def wait_for_notice(connection: psycopg.Connection, seconds: float) -> bool:
    """Sleep until somebody NOTIFYs a channel this connection LISTENs to, at most `seconds`. True if one came."""
    return any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
