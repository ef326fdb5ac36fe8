"""`classgan students …`: who may contribute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.text import Text

from deployments.cli.options import JsonOption
from deployments.cli.output import console, keep_private, print_json, show
from deployments.cli.tables import Listing
from gan_core.errors import RosterError, StackError, TrainingError
from gan_core.files import write_private
from gan_core.units import counted

if TYPE_CHECKING:
    from psycopg import Connection

    from deployments.server.class_file import ClassFile
    from deployments.student.invites import Invite
    from gan_core.store.viewers import ledger

commands = typer.Typer(no_args_is_help=True, help="Add, list, suspend and remove students.")
Login = Annotated[str, typer.Argument(help="The student's login.")]


@commands.command("list")
def students_list(as_json: JsonOption = False) -> None:
    """List all students: machines, credit, and whether they may contribute."""
    from deployments.local.database import database_url
    from gan_core.store.engine import connect
    from gan_core.store.viewers import ledger

    with database_url() as url, connect(url) as connection:
        rows = ledger.students(connection)
    if as_json:
        print_json(rows)
        return
    table = Listing("login", "name", "machines", "images", "state", folds=["name", "state"], spare=["machines"])
    for row in rows:
        state = Text(f"suspended: {row.suspended}", "red") if row.suspended else "may contribute"
        table.add(row.login, row.display_name, f"{row.machines:,}", f"{row.images:,}", state)
    if rows:
        show(table)
    else:
        console.print("No students yet.")


@commands.command("add")
def students_add(
    login: Annotated[str, typer.Argument(help="Login of one student: small letters, digits, underscores.")] = "",
    name: Annotated[str, typer.Option(help="The name that others see. Default: the login.")] = "",
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            exists=True,
            dir_okay=False,
            help="Class list, in place of one login: a Canvas or Moodle export, or a CSV with the columns login, name, email.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for a roster's invites.")] = Path("invites.csv"),
) -> None:
    """Add one student and print the invite, or add all new students of a roster."""
    if bool(login) == (roster is not None):
        raise typer.BadParameter("Name one login, or a roster with --roster.")
    if roster is not None:
        add_roster(roster, out)
    else:
        add_student(login, name)


@commands.command("rotate")
def students_rotate(login: Login) -> None:
    """Make a new invite for a student. The old one stops working at once."""
    from deployments.local.database import database_url
    from gan_core.settings import settings
    from gan_core.store import logins
    from gan_core.store.engine import connect

    class_file = _class_file()
    with database_url() as url, connect(url) as connection:
        invite = class_file.invite(settings().home, login, logins.issue(connection, _student(connection, login).login))
    _show(invite)


@commands.command("revoke")
def students_revoke(
    login: Login,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; the student reads it.")] = "the login was revoked",
) -> None:
    """Remove a student's login at once: units go to other workers, credit stays."""
    from deployments.local.database import database_url
    from gan_core.store import logins
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        logins.revoke(connection, _student(connection, login).login, reason)
    console.print(
        f"{login} is out: units go to others, credit stays. `classgan students rotate {login}` lets them in again.",
        soft_wrap=True,
    )


@commands.command("suspend")
def students_suspend(
    login: Login,
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="Why; the student reads it.")
    ] = "your instructor says so",
) -> None:
    """Suspend a student at once: units go to other workers, credit stays. `restore` undoes it."""
    from deployments.local.database import database_url
    from gan_core.store.engine import connect
    from gan_core.store.viewers import ledger

    with database_url() as url, connect(url) as connection:
        ledger.suspend(connection, _student(connection, login).id, reason)
    console.print(
        f"{login} is shut out from now on; units go to others, credit stays. `classgan students restore {login}` undoes it."
    )


@commands.command("restore")
def students_restore(login: Login) -> None:
    """Let a suspended student contribute again."""
    from deployments.local.database import database_url
    from gan_core.store.engine import connect
    from gan_core.store.viewers import ledger

    with database_url() as url, connect(url) as connection:
        ledger.suspend(connection, _student(connection, login).id, "")
    console.print(f"{login} may contribute again, as soon as the worker is started anew.")


def add_student(login: str, name: str) -> None:
    """Let one person in, and print the invite."""
    from deployments.local.database import database_url
    from deployments.server import rosters
    from gan_core.settings import settings
    from gan_core.store import logins
    from gan_core.store.engine import connect
    from gan_core.store.viewers import ledger

    class_file, login = _class_file(), rosters.checked_login(login)
    with database_url() as url, connect(url) as connection:
        if login in {row.login for row in ledger.students(connection) if row.has_login}:
            raise RosterError(
                f"{login!r} is in the class already, and invites are shown once. A new one, which ends the old: classgan students rotate {login}"
            )
        invite = class_file.invite(settings().home, login, logins.issue(connection, login, name))
    _show(invite)


def add_roster(path: Path, out: Path) -> None:
    """Let everybody of a class list in who isn't yet, and write their invites: both or nothing."""
    from deployments.local.database import database_url
    from deployments.server import rosters
    from gan_core.exports import spreadsheets
    from gan_core.settings import settings
    from gan_core.store import logins
    from gan_core.store.engine import connect

    class_file = _class_file()
    with database_url() as url, connect(url) as connection, connection.transaction():
        known = logins.people(connection)
        roster = rosters.read(path, known)
        new = [entry for entry in roster.entries if entry.login not in known]
        if new and out.exists():
            raise RosterError(
                f"{out} exists, and the invites in it can't be made again. Move it away, or name another file with --out."
            )
        rows = []
        for entry in new:
            facts = {"keys": [entry.key], "email": entry.email, "columns": dict(entry.identity)}
            secret = logins.issue(connection, entry.login, entry.name, facts)
            invite = class_file.invite(settings().home, entry.login, secret)
            rows.append((entry.login, entry.name, entry.email, invite.line, invite.command()))
        for entry in roster.entries:
            if person := known.get(entry.login):
                learned = logins.Person(person.name, entry.email, person.keys | {entry.key})
                logins.learn(connection, entry.login, learned, entry.identity)
        if rows:
            lines = [("login", "name", "email", "invite", "command"), *rows]
            write_private(out, spreadsheets.csv_bytes(lines, mark=True))  # names come from outside
    for remark in roster.remarks:
        console.print(escape(remark), soft_wrap=True)
    if not rows:
        console.print("Everybody in this roster is in the class already; nobody got a new invite.")
        return
    console.print(
        f"{counted(len(rows), 'student')} came in. Their invites are in {out}: mail each line to its owner, then delete the file.",
        soft_wrap=True,
    )
    if nowhere := [entry.login for entry in new if not entry.email]:
        console.print(
            f"The roster has no address of {', '.join(nowhere)}: hand these their lines over yourself.", soft_wrap=True
        )


def _class_file() -> ClassFile:
    from deployments.server.class_file import ClassFile
    from gan_core.settings import settings

    class_file = ClassFile.load(settings().home)
    if class_file is None:
        raise StackError(
            f"No class for other machines was made in {settings().home.resolve()}. Make one: classgan init --address HOST"
        )
    return class_file


def _show(invite: Invite) -> None:
    console.print(f"The invite of [bold]{invite.login}[/bold], shown this once. Whoever has it is {invite.login}:")
    keep_private()
    print(invite.command())  # plain: it will be copied


def _student(connection: Connection, login: str) -> ledger.StudentRow:
    from gan_core.store.viewers import ledger

    rows = {row.login: row for row in ledger.students(connection)}
    if login not in rows:
        raise TrainingError(f"There is no student with the login {login!r}. Students: {', '.join(rows) or 'none yet'}.")
    return rows[login]
