"""`classgan students …`: who may contribute."""

from psycopg import Connection
from rich.console import Console
from rich.table import Table

from deployments.reports import database_url
from gan_core.errors import TrainingError
from gan_core.store import ledger
from gan_core.store.engine import connect

console = Console()


def print_students() -> None:
    """Everybody, with what they have and whether they may contribute."""
    with database_url() as url, connect(url) as connection:
        rows = ledger.students(connection)
    table = Table("login", "name", "machines", "images", "state")
    for row in rows:
        state = f"[red]suspended[/red]: {row.suspended}" if row.suspended else "may contribute"
        table.add_row(row.login, row.display_name, f"{row.machines:,}", f"{row.images:,}", state)
    console.print(table if rows else "No students yet.")


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
