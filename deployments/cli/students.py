"""`classgan students …`: who may come in."""

from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.options import JsonOption

students = typer.Typer(no_args_is_help=True, help="Let students in, look at them, shut one out.")

Login = Annotated[str, typer.Argument(help="The student's login.")]


@students.command("list")
def students_list(as_json: JsonOption = False) -> None:
    """Everybody: machines, credit, and whether they may contribute."""
    from deployments.commands.students import print_students

    print_students(as_json)


@students.command("add")
def students_add(
    login: Annotated[str, typer.Argument(help="Login of one student: small letters, digits, underscores.")] = "",
    name: Annotated[str, typer.Option(help="The name that others see; the login, if left out.")] = "",
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            exists=True,
            dir_okay=False,
            help="A class list instead: what Canvas or Moodle exports, or a CSV with the columns login, name, email.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for a roster's invites.")] = Path("invites.csv"),
) -> None:
    """Let students in: one, whose invite is printed, or everybody in a roster who isn't in yet."""
    from deployments.commands.students import add_roster, add_student

    if bool(login) == (roster is not None):
        raise typer.BadParameter("Name one login, or a roster with --roster.")
    if roster is not None:
        add_roster(roster, out)
    else:
        add_student(login, name)


@students.command("rotate")
def students_rotate(login: Login) -> None:
    """Make a new invite; the old one ends at once."""
    from deployments.commands.students import rotate_student

    rotate_student(login)


@students.command("revoke")
def students_revoke(
    login: Login,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; the student reads it.")] = "the login was revoked",
) -> None:
    """Take a login away: sessions end at once, units go to others, credit stays."""
    from deployments.commands.students import revoke_student

    revoke_student(login, reason)


@students.command("suspend")
def students_suspend(
    login: Login,
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="Why; the student reads it.")
    ] = "your instructor says so",
) -> None:
    """Shut a student out at once: their sessions end, their units go to others, their credit stays."""
    from deployments.commands.students import suspend_student

    suspend_student(login, reason)


@students.command("restore")
def students_restore(login: Login) -> None:
    """Let a student contribute again."""
    from deployments.commands.students import restore_student

    restore_student(login)
