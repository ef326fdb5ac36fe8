"""Brings a database to this version: tables by Alembic, functions by their files. Safe to run twice, or at once."""

import hashlib
from contextlib import suppress
from importlib.resources import files

import psycopg
from psycopg import sql

from gan_core.store.engine import connect

STUDENT_ROLE = "classgan_student"  # what every student's login is a member of
OWNER_ROLE = "classgan_owner"  # whose rights the students' functions run with; nobody logs in as it
SUPERUSER_LIMITS = (  # of each student's sessions, which can't lift them
    "SET temp_file_limit = '64MB'",  # disk that one session may fill with sorted rows
    "SET log_min_messages = 'fatal'",  # errors that they cause on purpose would fill the log
    "SET log_min_error_statement = 'panic'",
)
VIEWER_ROLE = (
    "classgan_viewer"  # what whoever looks on reads with; nobody logs in as it unless the instructor lets them
)
CONNECTIONS = 24  # of one student: three for each device that computes, and some for looking
VIEWER_LIMITS = (
    "NOLOGIN CONNECTION LIMIT 16",
    "SET default_transaction_read_only = on",
    "SET statement_timeout = '10s'",
    "SET idle_in_transaction_session_timeout = '10s'",
)
LOCK = 0x636C6173  # "clas": two migrations wait for each other


def function_files() -> list[tuple[str, str]]:
    """(file name, text) of the functions, in the order in which they are made."""
    folder = files("gan_core.store").joinpath("sql", "functions")
    return sorted((f.name, f.read_text(encoding="utf-8")) for f in folder.iterdir() if f.name.endswith(".sql"))


def migrate(url: str) -> None:
    """Make or update everything of ours in this database."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, pool

    with connect(url) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        holder.execute("CREATE SCHEMA IF NOT EXISTS classgan")
        _create_roles(holder)
        _close(holder)
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=pool.NullPool)
        config = Config()
        config.set_main_option("script_location", str(files("gan_core.store").joinpath("migrations")))
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
        install_functions(holder)


def _create_roles(connection: psycopg.Connection) -> None:
    for role in (
        STUDENT_ROLE,
        OWNER_ROLE,
    ):  # roles belong to the whole server: another database of ours may have made them
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
            with suppress(psycopg.errors.DuplicateObject):  # it did so just now
                connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(role)))
    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (VIEWER_ROLE,)).fetchone():
        with suppress(psycopg.errors.DuplicateObject), connection.transaction():
            connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(VIEWER_ROLE)))
            for limit in VIEWER_LIMITS:
                connection.execute(sql.SQL("ALTER ROLE {} " + limit).format(sql.Identifier(VIEWER_ROLE)))
    # To hand functions over to the one, to look with the other's rights, and to ask with a student's.
    for role in (OWNER_ROLE, VIEWER_ROLE, STUDENT_ROLE):
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))


def _close(connection: psycopg.Connection) -> None:
    """Nobody makes tables of their own in here."""
    row = connection.execute("SELECT current_database()").fetchone()
    assert row is not None
    connection.execute(sql.SQL("REVOKE CREATE, TEMPORARY ON DATABASE {} FROM PUBLIC").format(sql.Identifier(row[0])))
    connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")


def install_functions(connection: psycopg.Connection) -> None:
    """Replace our functions if their files have changed, all at once. Running workers only notice the new behaviour."""
    texts = function_files()
    mark = hashlib.blake2b("".join(text for _, text in texts).encode(), digest_size=16).hexdigest()
    row = connection.execute("SELECT obj_description(to_regnamespace('student'), 'pg_namespace')").fetchone()
    if row and row[0] == mark:
        return
    with connection.transaction():
        connection.execute("DROP SCHEMA IF EXISTS student, watch CASCADE")
        connection.execute("DROP VIEW IF EXISTS classgan.ledger, classgan.waiting CASCADE")
        connection.execute("""
            DO $$ DECLARE f regprocedure; BEGIN
                FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'classgan'::regnamespace LOOP
                    EXECUTE format('DROP FUNCTION %s CASCADE', f);  -- with the trigger that calls it
                END LOOP;
            END $$
        """)
        connection.execute("CREATE SCHEMA student")
        connection.execute("CREATE SCHEMA watch")
        for _, text in texts:
            connection.execute(text.encode())
        connection.execute(sql.SQL("COMMENT ON SCHEMA student IS {}").format(sql.Literal(mark)))


def add_student(connection: psycopg.Connection, login: str, display_name: str = "") -> None:
    """Let this PostgreSQL role contribute; makes the role if there is none. For a class on one machine, whose workers ask
    PostgreSQL themselves.
    """
    with connection.transaction():
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (login,)).fetchone():
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(login)))
        connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(STUDENT_ROLE), sql.Identifier(login)))
        # Well-meant limits: whoever is connected can lift the time-outs, so classgan.end_runaway_sessions holds them.
        limits = (
            f"CONNECTION LIMIT {CONNECTIONS}",
            "SET statement_timeout = '2min'",
            "SET idle_in_transaction_session_timeout = '1min'",
        )
        if connection.info.parameter_status("is_superuser") == "on":
            limits += SUPERUSER_LIMITS
        for limit in limits:
            connection.execute(sql.SQL("ALTER ROLE {} " + limit).format(sql.Identifier(login)))
        connection.execute(
            "INSERT INTO classgan.students (login, display_name) VALUES (%s, %s) ON CONFLICT (login) DO NOTHING",
            (login, display_name or login),
        )
