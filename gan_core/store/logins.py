"""The students' logins. Each is a PostgreSQL role and a name at the class server, with the same random secret.

A secret has 192 random bits, so it can't be guessed and a fast hash hides it as well as a slow one would. We keep only
the hash, PostgreSQL only a SCRAM verifier: whoever reads our tables can't log in with what is there.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from psycopg.types.json import Jsonb

from gan_core.errors import RosterError
from gan_core.store.migrate import STUDENT_ROLE, add_student

SECRET_BYTES = 24
CLUSTER_LOGIN = "cluster"  # pods of the Kubernetes pool come in with it: machines, and no student
MARK = "a student of classgan's database "  # the comment on a student's role, which the whole server sees


@dataclass(frozen=True, slots=True)
class Person:
    """Whom a login belongs to, as rosters say."""

    name: str
    email: str
    keys: frozenset[str]  # GRADEBOOK:KEY of each list that they were in


def new_secret() -> str:
    """192 random bits, as 32 characters that need no quoting anywhere."""
    return secrets.token_urlsafe(SECRET_BYTES)


def hash_of(secret: str) -> str:
    """What we keep of a secret: its SHA-256, in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue(connection: Connection, login: str, display_name: str = "", roster: Mapping[str, Any] | None = None) -> str:
    """Make this student known, or known anew, with a fresh secret; returns it. It is shown this once.

    An older secret is worth nothing from now on, and its sessions end. A revoked or suspended student is let in again.

    Args:
        roster: `keys`, `email` and the gradebook's own `columns`, as they were; None leaves what is known.

    Raises:
        RosterError: the name is a login of somebody else's on this PostgreSQL server.
    """
    _require_ours(connection, login)
    secret = new_secret()
    verifier = connection.pgconn.encrypt_password(secret.encode(), login.encode(), b"scram-sha-256")
    with connection.transaction():
        add_student(connection, login, display_name)
        connection.execute(
            sql.SQL("COMMENT ON ROLE {} IS {}").format(
                sql.Identifier(login), sql.Literal(MARK + connection.info.dbname)
            )
        )
        connection.execute(
            sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(login), sql.Literal(verifier.decode()))
        )
        connection.execute(
            "UPDATE classgan.students SET secret_hash = %s, suspended = '', roster = coalesce(%s, roster),"
            " display_name = CASE %s WHEN '' THEN display_name ELSE %s END WHERE login = %s",
            (hash_of(secret), Jsonb(dict(roster)) if roster else None, display_name, display_name, login),
        )
    _end_sessions(connection, login)
    return secret


def revoke(connection: Connection, login: str, reason: str) -> None:
    """Take a student's login away: sessions end now, units go to others, what was earned stays."""
    with connection.transaction():  # durable before anything that one of their sessions could block
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN PASSWORD NULL").format(sql.Identifier(login)))
        connection.execute("UPDATE classgan.students SET secret_hash = '' WHERE login = %s", (login,))
    connection.execute("SELECT classgan.suspend(id, %s) FROM classgan.students WHERE login = %s", (reason, login))


def people(connection: Connection) -> dict[str, Person]:
    """By login, what tells whether somebody in a roster is this student."""
    rows = connection.execute(
        "SELECT login, display_name, coalesce(roster->>'email', ''), coalesce(roster->'keys',"
        " to_jsonb(ARRAY[coalesce(roster->>'key', 'plain:' || login)])) FROM classgan.students"
    ).fetchall()
    return {login: Person(name, email, frozenset(keys)) for login, name, email, keys in rows}


def learn(connection: Connection, login: str, person: Person, columns: Mapping[str, str]) -> None:
    """Keep what another roster says of a student whom the class has: another gradebook's columns beside what is known."""
    facts = {"keys": sorted(person.keys)} | ({"email": person.email} if person.email else {})
    connection.execute(
        "UPDATE classgan.students SET roster = (roster - 'key') || %s"
        " || jsonb_build_object('columns', coalesce(roster->'columns', '{}') || %s) WHERE login = %s",
        (Jsonb(facts), Jsonb(dict(columns)), login),
    )


def hashes(connection: Connection) -> dict[str, str]:
    """The hash of each secret with which somebody may come in now, by login."""
    rows = connection.execute(
        "SELECT login, secret_hash FROM classgan.students WHERE secret_hash <> '' AND suspended = ''"
    ).fetchall()
    return dict(rows)


def _require_ours(connection: Connection, login: str) -> None:
    """Roles belong to the whole server: one with this name may be another class's student, or no student at all."""
    row = connection.execute(
        "SELECT coalesce(shobj_description(oid, 'pg_authid'), ''), pg_has_role(oid, %s, 'MEMBER') FROM pg_roles"
        " WHERE rolname = %s AND NOT EXISTS (SELECT FROM classgan.students WHERE login = rolname)",
        (STUDENT_ROLE, login),
    ).fetchone()
    if row is None:
        return
    mark, is_student = row
    home = mark.removeprefix(MARK)
    if not is_student:
        raise RosterError(
            f"PostgreSQL has a login {login!r} that is no student's. Nothing was changed; choose another name for this student."
        )
    if (
        home != connection.info.dbname
        and connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (home,)).fetchone()
    ):
        raise RosterError(
            f"{login!r} is a student of another class on this PostgreSQL server (database {home!r}), and a new secret would shut "
            "them out there. Nothing was changed; choose another name, or give each class a server."
        )


def _end_sessions(connection: Connection, login: str) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND datname = current_database()",
        (login,),
    )
