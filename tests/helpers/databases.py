"""Databases for tests: clones of a migrated one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import psycopg

_numbers = count(1)


@contextmanager
def clone_of(server: str, suffix: str = "") -> Iterator[str]:
    """URL of a new database; with a suffix, the clone and its template have it, but the URL hasn't."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    admin = server.replace("/template?", "/postgres?")
    with psycopg.connect(admin, autocommit=True) as connection:
        # As a copy of files it is not written into the log, too.
        connection.execute(f"CREATE DATABASE {name}{suffix} TEMPLATE template{suffix} STRATEGY file_copy")
    yield server.replace("/template?", f"/{name}?")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name}{suffix} WITH (FORCE)")
