"""The students' logins: each is a name at the class server with a random secret. PostgreSQL lets no student in.

A secret has 192 random bits, so it can't be guessed and a fast hash hides it as well as a slow one would. We keep only
the hash: whoever reads our tables can't log in with what is there.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from psycopg.types.json import Jsonb

SECRET_BYTES = 24
CLUSTER_LOGIN = "cluster"  # pods of the Kubernetes pool come in with it: machines, and no student
MARK = "a student of classgan's database "  # the comment that version 0.1 put on a student's role


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

    An older secret is worth nothing from now on. A revoked or suspended student is let in again.

    Args:
        roster: `keys`, `email` and the gradebook's own `columns`, as they were; None leaves what is known.
    """
    secret = new_secret()
    connection.execute(
        "INSERT INTO classgan.students AS s (login, display_name, secret_hash, roster)"
        " VALUES (%(login)s::text, coalesce(nullif(%(name)s, ''), %(login)s::text), %(hash)s, coalesce(%(roster)s::jsonb, '{}'))"
        " ON CONFLICT (login) DO UPDATE SET secret_hash = %(hash)s, suspended = '', roster = coalesce(%(roster)s::jsonb, s.roster),"
        " display_name = coalesce(nullif(%(name)s, ''), s.display_name)",
        {
            "login": login,
            "name": display_name,
            "hash": hash_of(secret),
            "roster": Jsonb(dict(roster)) if roster else None,
        },
    )
    return secret


def revoke(connection: Connection, login: str, reason: str) -> None:
    """Take a student's login away: units go to others, what was earned stays."""
    connection.execute("UPDATE classgan.students SET secret_hash = '' WHERE login = %s", (login,))
    connection.execute("SELECT classgan.suspend(id, %s) FROM classgan.students WHERE login = %s", (reason, login))


def close_sql(connection: Connection) -> None:
    """Shut what version 0.1 had opened: there, each student was a role of PostgreSQL's with a password. Another class's students
    on the same server, and whoever else has a login there, don't come into this database either.
    """
    ours_alone = (
        "REVOKE CONNECT ON DATABASE {} FROM PUBLIC",
        "GRANT CONNECT ON DATABASE {} TO classgan_viewer",
    )
    for statement in ours_alone:
        connection.execute(sql.SQL(statement).format(sql.Identifier(connection.info.dbname)))
    ours = connection.execute(
        "SELECT rolname FROM pg_roles AS r JOIN classgan.students ON login = rolname WHERE rolcanlogin AND NOT rolsuper"
        " AND shobj_description(r.oid, 'pg_authid') = %s",
        (MARK + connection.info.dbname,),
    ).fetchall()
    for (login,) in ours:
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN PASSWORD NULL").format(sql.Identifier(login)))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND datname = current_database()",
            (login,),
        )


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
