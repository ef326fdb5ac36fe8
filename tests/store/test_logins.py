"""One secret opens a student's two doors, and none once it was taken away."""

import psycopg
import pytest

from gan_core.store import logins
from gan_core.store.viewers import ledger


def test_an_issued_secret_is_known_by_its_hash_and_by_postgresql(connection):
    secret = logins.issue(connection, "ada", "Ada Lovelace", {"key": "x", "columns": {"ID": "7"}})
    assert len(secret) == 32
    assert logins.hashes(connection) == {"ada": logins.hash_of(secret)}
    stored = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'ada'").fetchone()[0]
    assert stored.startswith("SCRAM-SHA-256$")
    everything = str(connection.execute("SELECT * FROM classgan.students").fetchall()) + stored
    assert secret not in everything


def test_a_new_secret_ends_the_old_one_and_its_sessions_and_keeps_what_is_known(connection, database):
    first = logins.issue(connection, "ada", "Ada Lovelace", {"key": "Moodle:7"})
    with psycopg.connect(database.replace("//instructor@", "//ada@"), autocommit=True) as theirs:
        second = logins.issue(connection, "ada")
        with pytest.raises(psycopg.OperationalError):
            theirs.execute("SELECT 1")
    assert second != first
    assert logins.hashes(connection) == {"ada": logins.hash_of(second)}
    assert logins.people(connection) == {"ada": logins.Person("Ada Lovelace", "", frozenset({"Moodle:7"}))}
    assert ledger.students(connection)[0].display_name == "Ada Lovelace"


def test_a_revoked_login_ends_everywhere_and_a_new_invite_lets_it_in_again(connection, database):
    url = database.replace("//instructor@", "//ada@")
    logins.issue(connection, "ada")
    with psycopg.connect(url, autocommit=True) as theirs:
        logins.revoke(connection, "ada", "left the class")
        with pytest.raises(psycopg.OperationalError):
            theirs.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        psycopg.connect(url)
    assert logins.hashes(connection) == {}
    logins.issue(connection, "ada")
    psycopg.connect(url).close()
    assert set(logins.hashes(connection)) == {"ada"}


def test_who_is_suspended_does_not_come_in_meanwhile(connection):
    logins.issue(connection, "ada")
    ada = ledger.students(connection)[0].id
    ledger.suspend(connection, ada, "garbage")
    assert logins.hashes(connection) == {}
    ledger.suspend(connection, ada, "")
    assert set(logins.hashes(connection)) == {"ada"}
