"""`classgan init`: everything that a class needs before its first student comes. May be repeated."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel

from deployments.cli.output import console
from gan_core.errors import StackError

if TYPE_CHECKING:
    from psycopg import Connection

    from deployments.server.class_file import ClassFile

commands = typer.Typer()


@commands.command()
def init(
    addresses: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            "-a",
            metavar="HOST",
            help="Host name or IP at which students reach this machine; may be repeated, invites name the first. "
            "Default: this machine's address in its network.",
        ),
    ] = None,
    listen: Annotated[str, typer.Option(help="Address that the servers bind to.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the class server.")] = 4242,
    database: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="URL of an existing PostgreSQL, with its owner's login. Default: the class runs its own.",
        ),
    ] = "",
) -> None:
    """Make a class that students join from their own machines: certificate, logins, database. May be repeated.

    Then: `classgan students add`, and `classgan up`.
    """
    make_class(addresses or [], listen, port, database)


@commands.command()
def migrate() -> None:
    """Make or update the tables in the database that CLASSGAN_DATABASE_URL names."""
    from deployments.local.database import database_url
    from gan_core.store.migrate import migrate as run

    with database_url() as url:
        run(url)
    typer.echo("The database is up to date.")


OLDEST = 14  # major version of PostgreSQL


# What the instructor's role must be able to do on an existing server, and how a superuser grants it.
RIGHTS = (
    ("own the database", "pg_has_role(current_user, (SELECT datdba FROM pg_database WHERE datname = current_database()), 'MEMBER')", "ALTER DATABASE {database} OWNER TO {role}"),
    ("make roles", "(SELECT rolcreaterole FROM pg_roles WHERE rolname = current_user)", "ALTER ROLE {role} CREATEROLE"),
    ("make a database for Prefect's own records", "EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = current_user AND r.rolcreatedb) OR EXISTS (SELECT FROM pg_database WHERE datname = current_database() || '_prefect' AND pg_has_role(current_user, datdba, 'MEMBER'))", "CREATE DATABASE {database}_prefect OWNER {role}"),
)  # fmt: skip


def make_class(addresses: Sequence[str], listen: str, port: int, database_url: str) -> ClassFile:
    """Make or change the class in this folder; secrets, students and trainings stay.

    Raises:
        StackError: an address can't be one, or the existing server lacks a right; says what to do, and nothing was changed.
    """
    from deployments import prefect_database
    from deployments.server.class_file import ClassFile, make
    from gan_core.settings import settings
    from gan_core.store.engine import connect
    from gan_core.store.migrate import migrate

    home = settings().home.resolve()
    known = tuple(checked(address) for address in addresses) or (_own_address(),)
    if database_url:
        with connect(database_url) as connection:
            require_rights(connection)
    before = ClassFile.load(home)
    class_file = make(home, known, listen, port, database_url)
    if database_url:
        migrate(database_url)
        prefect_database.make_beside(database_url)
    else:
        _make_embedded(home)
    console.print(
        Panel(
            "\n".join(
                (
                    f"students come to   {known[0]}",
                    f"through port       {port} (HTTPS): open it",
                    f"kept in            {home}",
                    "                   back it up, show it to nobody",
                    "let students in    classgan students add NAME, or --roster FILE",
                    "start the class    classgan up",
                )
            ),
            title="The class is made",
            expand=False,
        ),
        soft_wrap=True,
    )
    if before is not None and before.addresses[0] != known[0]:
        console.print(
            f"Invites made before name {before.addresses[0]}; with --address {known[0]} they still lead here.",
            soft_wrap=True,
        )
    return class_file


def checked(address: str) -> str:
    """A host name or IP that students can reach.

    Raises:
        StackError: it can't be one.
    """
    if (
        address in ("0.0.0.0", "::", "localhost")
        or not address
        or any(c in address for c in "/@ ")
        or address.count(":") == 1
    ):
        raise StackError(
            f"{address!r} is no address that students could reach: give a host name or an IP without port, such as gan.example.edu or 192.168.1.20."
        )
    return address


def require_rights(connection: Connection) -> None:
    """Raises StackError if this server is too old, or this role may not do what the class needs."""
    if connection.info.server_version < OLDEST * 10_000:
        raise StackError(
            f"This PostgreSQL is version {connection.info.server_version // 10_000}; {OLDEST} or newer is needed."
        )
    if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_trgm'").fetchone():
        raise StackError(
            "This PostgreSQL lacks the extension pg_trgm, which Prefect needs for its own records. Install PostgreSQL's contrib modules: "
            "on Debian they come with the server, elsewhere the package is called postgresql-contrib."
        )
    row = connection.execute(
        "SELECT current_user, current_database(), rolsuper FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    assert row is not None
    role, database, is_superuser = row
    missing = [
        (what, remedy.format(role=role, database=database))
        for what, test, remedy in RIGHTS
        if not is_superuser and connection.execute(f"SELECT {test}".encode()).fetchone() != (True,)
    ]
    if missing:
        raise StackError(
            f"The role {role!r} may not {', may not '.join(what for what, _ in missing)}. A superuser allows it: "
            + "; ".join(remedy for _, remedy in missing)
            + "."
        )


def _make_embedded(home: Path) -> None:
    """The embedded server's data folder and tables; on its socket only, as long as it isn't `up`."""
    from deployments.local.postgres import Postgres
    from deployments.local.stack import LocalStack
    from gan_core.settings import settings
    from gan_core.store.migrate import migrate

    stack = LocalStack(home, settings().outputs)
    try:
        url = stack.attach().postgres.url()
    except StackError:
        server = Postgres(home / "postgres")
        server.start()
        try:
            migrate(server.url())
        finally:
            server.stop()
        return
    migrate(url)
    console.print("The class is up: changed addresses hold from its next start on.")


def _own_address() -> str:
    """This machine's address in the network that leads outside; nothing is sent."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation
            return probe.getsockname()[0]
        except OSError as exc:
            raise StackError(
                "This machine has no address in any network. Name one: classgan init --address HOST"
            ) from exc
