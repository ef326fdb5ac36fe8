"""`classgan students …`: who may contribute."""

from pathlib import Path

from psycopg import Connection
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deployments import roster
from deployments.commands.reports import database_url
from deployments.commands.watch import print_json, show
from deployments.door import Door
from deployments.invites import Invite, invite_for
from gan_core.errors import RosterError, StackError, TrainingError
from gan_core.exports import spreadsheets
from gan_core.files import write_private
from gan_core.settings import settings
from gan_core.store import ledger, logins
from gan_core.store.engine import connect

console = Console()


def print_students(as_json: bool) -> None:
    """Everybody, with what they have and whether they may contribute."""
    with database_url() as url, connect(url) as connection:
        rows = ledger.students(connection)
    if as_json:
        print_json(rows)
        return
    table = Table("login", "name", "machines", "images", "state")
    for row in rows:
        state = f"[red]suspended[/red]: {escape(row.suspended)}" if row.suspended else "may contribute"
        table.add_row(row.login, escape(row.display_name), f"{row.machines:,}", f"{row.images:,}", state)
    if rows:
        show(table)
    else:
        console.print("No students yet.")


def add_student(login: str, name: str) -> None:
    """Let one person in, and print the invite."""
    door, login = _door(), roster.checked_login(login)
    with database_url() as url, connect(url) as connection:
        if login in {row.login for row in ledger.students(connection) if row.has_login}:
            raise RosterError(
                f"{login!r} is in the class already, and invites are shown once. A new one, which ends the old: classgan students rotate {login}"
            )
        invite = invite_for(door, settings().home, login, logins.issue(connection, login, name))
    _show(invite)


def add_roster(path: Path, out: Path) -> None:
    """Let everybody of a class list in who isn't yet, and write their invites: both or nothing."""
    door = _door()
    if out.exists():
        raise RosterError(
            f"{out} exists, and the invites in it can't be made again. Move it away, or name another file with --out."
        )
    with database_url() as url, connect(url) as connection, connection.transaction():
        known = logins.roster_keys(connection)
        entries = [entry for entry in roster.read(path, known) if entry.login not in known]
        rows = []
        for entry in entries:
            facts = {"key": entry.key, "email": entry.email, "columns": dict(entry.identity)}
            secret = logins.issue(connection, entry.login, entry.name, facts)
            invite = invite_for(door, settings().home, entry.login, secret)
            rows.append((entry.login, entry.name, entry.email, invite.line, invite.command()))
        if rows:
            lines = [("login", "name", "email", "invite", "command"), *rows]
            write_private(out, spreadsheets.csv_bytes(lines, mark=True))  # names come from outside
    if not rows:
        console.print("Everybody in this roster is in the class already; nothing was changed.")
        return
    console.print(
        f"{len(rows)} students came in. Their invites are in {out}: mail each line to its owner, then delete the file.",
        soft_wrap=True,
    )


def rotate_student(login: str) -> None:
    """A new secret for a student: the old one ends now."""
    door = _door()
    with database_url() as url, connect(url) as connection:
        invite = invite_for(door, settings().home, login, logins.issue(connection, _student(connection, login).login))
    _show(invite)


def revoke_student(login: str, reason: str) -> None:
    with database_url() as url, connect(url) as connection:
        logins.revoke(connection, _student(connection, login).login, reason)
    console.print(
        f"{login} is out: sessions end now, units go to others, credit stays. `classgan students rotate {login}` lets them in again.",
        soft_wrap=True,
    )


def _door() -> Door:
    door = Door.load(settings().home)
    if door is None:
        raise StackError(
            f"No class for other machines was made in {settings().home.resolve()}. Make one: classgan init --address HOST"
        )
    return door


def _show(invite: Invite) -> None:
    console.print(f"The invite of [bold]{invite.login}[/bold], shown this once. Whoever has it is {invite.login}:")
    print(invite.command())  # plain: it will be copied


def suspend_student(login: str, reason: str) -> None:
    with database_url() as url, connect(url) as connection:
        ledger.suspend(connection, _student(connection, login).id, reason)
    console.print(
        f"{login} is shut out from now on; units go to others, credit stays. `classgan students restore {login}` undoes it."
    )


def restore_student(login: str) -> None:
    with database_url() as url, connect(url) as connection:
        ledger.suspend(connection, _student(connection, login).id, "")
    console.print(f"{login} may contribute again, as soon as the worker is started anew.")


def _student(connection: Connection, login: str) -> ledger.StudentRow:
    rows = {row.login: row for row in ledger.students(connection)}
    if login not in rows:
        raise TrainingError(f"There is no student with the login {login!r}. Students: {', '.join(rows) or 'none yet'}.")
    return rows[login]
