"""An existing PostgreSQL: what the instructor's role must be able to do is checked before anything is changed."""

import asyncio

import psycopg
import pytest
from sqlalchemy import make_url

from deployments import prefect_database
from deployments.cli.server.setup import RIGHTS, checked, require_rights
from deployments.server.door.database import Database
from gan_core.errors import StackError, StoreError
from gan_core.store import logins, student
from gan_core.store.engine import connect
from gan_core.store.migrate import migrate
from gan_core.store.viewers import ledger


@pytest.fixture
def plain(database, connection):
    """URL of a fresh, empty database as a role that may do nothing special."""
    connection.execute("DROP ROLE IF EXISTS teacher")
    connection.execute("CREATE ROLE teacher LOGIN")
    connection.execute("CREATE DATABASE bare")
    url = database.replace("//instructor@", "//teacher@")
    name = url.split("/")[3].split("?")[0]
    yield url.replace(f"/{name}?", "/bare?")
    for beside in ("bare", "bare_prefect"):
        connection.execute(f"DROP DATABASE IF EXISTS {beside} WITH (FORCE)")
    connection.execute("REVOKE classgan_owner, classgan_student, classgan_viewer FROM teacher CASCADE")
    connection.execute("DROP OWNED BY teacher CASCADE")
    connection.execute("DROP ROLE teacher")


def grant_all(connection) -> None:
    for _, _, remedy in RIGHTS:
        connection.execute(remedy.format(role="teacher", database="bare"))
    connection.execute(
        "GRANT classgan_owner, classgan_student, classgan_viewer TO teacher WITH ADMIN OPTION"
    )  # made by another class


def test_what_is_missing_is_named_with_the_statement_that_grants_it(plain, connection):
    with connect(plain) as theirs, pytest.raises(StackError) as refused:
        require_rights(theirs)
    for what, _, remedy in RIGHTS:
        assert what in str(refused.value)
        assert remedy.format(role="teacher", database="bare") in str(refused.value)
    grant_all(connection)
    with connect(plain) as theirs:
        require_rights(theirs)


def test_with_these_rights_and_no_more_a_class_can_be_made_and_led(plain, connection):
    grant_all(connection)
    migrate(plain)
    with connect(plain) as theirs:
        roles = theirs.execute(
            "SELECT rolname FROM pg_roles ORDER BY 1"
        ).fetchall()  # other tests' too: all share one server
        logins.issue(theirs, "hedy")
        assert asyncio.run(asked(plain, student.my_credit)) == (0, 0, 0.0)
        with pytest.raises(StoreError, match="permission denied for schema classgan"):
            asyncio.run(asked(plain, lambda c: c.execute("SELECT * FROM classgan.students")))
        logins.revoke(theirs, "hedy", "left")
        with pytest.raises(StoreError, match="Your login is suspended: left"):
            asyncio.run(asked(plain, student.my_credit))
        assert [row.login for row in ledger.students(theirs)] == ["hedy"]
        assert theirs.execute("SELECT rolname FROM pg_roles ORDER BY 1").fetchall() == roles


async def asked(url: str, work):
    """What the class server gets in hedy's name."""
    database = Database(url)
    database.open()
    try:
        return await database.ask("hedy", work)
    finally:
        database.close()


def test_prefects_records_lie_beside_the_class_where_only_their_owner_comes_in(plain, connection):
    with pytest.raises(StackError, match=r"'teacher' may not make it. A superuser does: CREATE DATABASE bare_prefect"):
        prefect_database.make_beside(plain)
    connection.execute("CREATE DATABASE bare_prefect OWNER teacher")
    assert prefect_database.make_beside(plain) == ""
    theirs = plain.replace("/bare?", "/bare_prefect?")
    with connect(theirs) as records:
        records.execute("CREATE EXTENSION pg_trgm")  # the first thing that Prefect does there
    connection.execute("DROP ROLE IF EXISTS stranger")
    connection.execute("CREATE ROLE stranger LOGIN")
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(theirs.replace("//teacher@", "//stranger@"))
    connection.execute("DROP ROLE stranger")


def test_a_class_with_records_in_sqlite_is_told_where_they_stay(plain, connection, tmp_path):
    connection.execute("ALTER ROLE teacher CREATEDB")
    (tmp_path / "prefect.db").touch()
    assert f"stays in {tmp_path / 'prefect.db'}; enter Secret blocks again" in prefect_database.make_beside(
        plain, tmp_path
    )
    assert prefect_database.make_beside(plain, tmp_path) == ""


def test_prefects_server_is_led_to_the_same_place_as_the_class():
    """A password may have any character; what libpq reads of TLS, Prefect's driver reads from the environment."""
    given = "postgresql://me:p%40s%2Fs@db.example.edu:5433/gan?sslmode=verify-full&sslrootcert=/etc/ca.pem"
    settings = prefect_database.settings_for(given)
    address = make_url(settings.pop("PREFECT_SERVER_DATABASE_CONNECTION_URL"))
    _, told = address.get_dialect()().create_connect_args(address)
    assert told == {
        "host": "db.example.edu",
        "port": 5433,
        "user": "me",
        "password": "p@s/s",
        "database": "gan_prefect",
    }
    assert settings == {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": "/etc/ca.pem"}


@pytest.mark.parametrize(
    "address", ["", "0.0.0.0", "localhost", "https://gan.example.edu", "gan.example.edu:4242", "a b"]
)
def test_an_address_that_nobody_could_reach_is_refused(address):
    with pytest.raises(StackError, match="no address that students could reach"):
        checked(address)


@pytest.mark.parametrize("address", ["gan.example.edu", "192.168.1.20", "2001:db8::7"])
def test_names_and_addresses_are_taken(address):
    assert checked(address) == address
