"""One secret opens the class server to a student, and nothing once it was taken away."""

from uuid import uuid4

import psycopg
import pytest
from crowd import fill
from psycopg import sql

from gan_core.status.throughput import health
from gan_core.store import logins, student
from gan_core.store.migrate import add_student
from gan_core.store.viewers import ledger, watching
from gan_core.units import Presence


def test_an_issued_secret_is_known_by_its_hash_only(connection):
    secret = logins.issue(connection, "ada", "Ada Lovelace", {"key": "x", "columns": {"ID": "7"}})
    assert len(secret) == 32
    assert logins.hashes(connection) == {"ada": logins.hash_of(secret)}
    assert secret not in str(connection.execute("SELECT * FROM classgan.students").fetchall())


def test_no_student_is_a_role_of_postgresqls(connection):
    connection.execute("DROP ROLE IF EXISTS margaret")
    logins.issue(connection, "margaret")
    assert connection.execute("SELECT FROM pg_roles WHERE rolname = 'margaret'").fetchone() is None


def test_a_new_secret_ends_the_old_one_and_keeps_what_is_known(connection):
    first = logins.issue(connection, "ada", "Ada Lovelace", {"key": "Moodle:7"})
    second = logins.issue(connection, "ada")
    assert second != first
    assert logins.hashes(connection) == {"ada": logins.hash_of(second)}
    assert logins.people(connection) == {"ada": logins.Person("Ada Lovelace", "", frozenset({"Moodle:7"}))}
    assert ledger.students(connection)[0].display_name == "Ada Lovelace"


def test_a_revoked_login_ends_and_a_new_invite_lets_it_in_again(connection):
    logins.issue(connection, "ada")
    logins.revoke(connection, "ada", "left the class")
    assert logins.hashes(connection) == {}
    logins.issue(connection, "ada")
    assert set(logins.hashes(connection)) == {"ada"}


def test_a_class_of_version_0_1_shuts_the_way_into_postgresql(connection, database):
    """There each student was a role with a password. Somebody else's role of the same name is left as it is,
    and comes in no more than anybody."""
    for login in ("margaret", "backup_tool"):
        connection.execute(f"DROP ROLE IF EXISTS {login}")
        connection.execute(f"CREATE ROLE {login} LOGIN")
        logins.issue(connection, login)
    try:
        mark = sql.Literal(logins.MARK + connection.info.dbname)
        connection.execute(sql.SQL("COMMENT ON ROLE margaret IS {}").format(mark))
        with psycopg.connect(database.replace("//instructor@", "//margaret@"), autocommit=True) as theirs:
            logins.close_sql(connection)
            with pytest.raises(psycopg.OperationalError):
                theirs.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
            psycopg.connect(database.replace("//instructor@", "//margaret@"))
        theirs = connection.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'backup_tool'").fetchone()
        assert theirs == (True,)
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(database.replace("//instructor@", "//backup_tool@"))
        logins.close_sql(connection)  # again, at the next start
    finally:
        connection.execute("DROP ROLE margaret, backup_tool")


def test_who_is_suspended_does_not_come_in_meanwhile(connection):
    logins.issue(connection, "ada")
    ada = ledger.students(connection)[0].id
    ledger.suspend(connection, ada, "garbage")
    assert logins.hashes(connection) == {}
    ledger.suspend(connection, ada, "")
    assert set(logins.hashes(connection)) == {"ada"}


def test_a_machine_whose_student_is_shut_out_is_offline_at_once(connection, tiny):
    """Not only after half a minute of silence, for which it would still be waited for."""
    training = fill(connection, 2, 3, tiny)
    assert ledger.overview(connection, "faces").workers_online == 2
    logins.revoke(connection, "login0", "left the class")
    rows = {row.name: Presence.of(row.seconds_silent) for row in ledger.workers(connection)}
    assert rows == {"login0-laptop": Presence.OFFLINE, "login1-laptop": Presence.ONLINE}
    assert ledger.overview(connection, "faces").workers_online == 1
    assert watching.overview(connection, training).workers_online == 1


def test_two_programs_under_one_name_are_noticed(connection):
    add_student(connection, "instructor")
    first, second = uuid4(), uuid4()

    def said(boot) -> str:
        student.heartbeat(connection, desk, boot)
        return ledger.workers(connection)[0].message

    desk = student.register(connection, "desk", first, "cpu", {})
    assert said(first) == ""
    student.register(connection, "desk", second, "cpu", {})
    assert said(first) == ""  # it may be about to end: a restart is nothing to speak of
    connection.execute("UPDATE classgan.workers SET registered_at = registered_at - interval '11 seconds'")
    assert said(second) == ""
    assert said(first).startswith("two programs work under this name: end one of them")
    assert health(Presence.ONLINE, 1, 0, 0, said(second)) == (
        "two programs work under this name; give one machine another name"
    )
