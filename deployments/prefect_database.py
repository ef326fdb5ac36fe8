"""The database of Prefect's own records: on the class's PostgreSQL, beside the class's."""

from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from gan_core.errors import StackError
from gan_core.store.engine import connect

SUFFIX = "_prefect"  # of its name
TLS = {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY"}


def name_beside(url: str) -> str:
    """What Prefect's database is called beside the class's at this URL."""
    return f"{conninfo_to_dict(url).get('dbname') or 'classgan'}{SUFFIX}"


def make_beside(url: str, before: Path | None = None) -> str:
    """Make Prefect's database beside the class's at this URL, unless it is there. Only its owner may enter it.

    Args:
        before: folder in which an older class may have Prefect's records, in SQLite.

    Returns:
        what a person should know, or ""

    Raises:
        StackError: this role may not; says what a superuser does.
        StoreUnreachable: nobody answers there.
    """
    name = name_beside(url)
    with connect(url) as connection:
        is_there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is not None
        try:
            if not is_there:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege as exc:
            role = connection.info.user
            raise StackError(
                f"Prefect keeps its own records in the database {name}, and the role {role!r} may not make it. A superuser does: "
                f"CREATE DATABASE {name} OWNER {role}."
            ) from exc
        connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM public").format(sql.Identifier(name)))
    if is_there or before is None or not (old := before / "prefect.db").exists():
        return ""
    return (
        f"Prefect's own records are in PostgreSQL from now on. What it recorded before (runs, logs, Secret blocks) stays in {old}; "
        "enter Secret blocks again. Trainings, weights and credit are untouched."
    )


def settings_for(url: str) -> dict[str, str]:
    """Environment of a Prefect server that keeps its records beside the class's at this URL. It may hold a password."""
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    query = {name: parts[name] for name in ("host", "port") if name in parts}
    login = quote(parts.get("user", ""), safe="") + (
        f":{quote(parts['password'], safe='')}" if "password" in parts else ""
    )
    address = f"postgresql+asyncpg://{login}@/{quote(name_beside(url), safe='')}?{urlencode(query)}"
    # Of TLS, the driver reads what libpq reads.
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": address} | {
        variable: parts[name] for name, variable in TLS.items() if name in parts
    }
