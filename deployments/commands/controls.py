"""`classgan pause`, `resume`, `cancel`, `change`, `events`: a person's word on a training, and its history."""

import getpass
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deployments.commands.plans import changes_from
from deployments.commands.reports import database_url
from gan_core.errors import PlanError
from gan_core.settings import settings
from gan_core.store import events, trainings
from gan_core.store.engine import Link, connect
from tasks import control

if TYPE_CHECKING:
    from deployments.local_stack import LocalStack

console = Console()


def pause_training(name: str) -> None:
    with database_url() as url, connect(url) as connection:
        console.print(control.pause(connection, name, getpass.getuser()), soft_wrap=True)


def cancel_training(name: str) -> None:
    with database_url() as url, connect(url) as connection:
        console.print(control.cancel(connection, name, getpass.getuser()), soft_wrap=True)


def resume_training(name: str) -> None:
    """Needs the Prefect server: a coordinator is a run of `train`."""
    with database_url() as url, connect(url) as connection, _prefect():
        console.print(control.resume(connection, name, getpass.getuser()), soft_wrap=True)


def change_training(name: str, changes: Sequence[str]) -> None:
    values = changes_from(changes)
    if not values:
        raise PlanError("Nothing to change: name a knob, for example --set quorum=3750. `classgan plan` lists them.")
    with database_url() as url, connect(url) as connection:
        console.print(control.change(connection, name, values, getpass.getuser()), soft_wrap=True)


@contextmanager
def _prefect() -> Generator[None]:
    """Speak to the Prefect server of the class on this machine, or to the one that PREFECT_API_URL names.

    Raises:
        StackError: no class runs here.
    """
    from deployments.local_stack import LocalStack

    if settings().database_url:
        yield
        return
    with reaching(LocalStack(settings().home, settings().outputs).attach()):
        yield


@contextmanager
def reaching(stack: "LocalStack") -> Generator[None]:
    """Speak to this class's Prefect server, as its instructor. Holds in this thread only."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_SSL_CERT_FILE, PREFECT_API_URL, temporary_settings

    found = stack.reach()
    reach = {
        PREFECT_API_URL: found["PREFECT_API_URL"],
        PREFECT_API_AUTH_STRING: found.get("PREFECT_API_AUTH_STRING"),
        PREFECT_API_SSL_CERT_FILE: found.get("PREFECT_API_SSL_CERT_FILE", ""),
    }
    with temporary_settings({name: value for name, value in reach.items() if value}):
        yield


def print_events(name: str, limit: int, follow: bool) -> None:
    """What happened beyond the ordinary, the newest last."""
    with database_url() as url, Link(url) as link:
        if name:
            link.call(lambda c: trainings.get(c, name))  # a name that doesn't exist gets a sentence
        found = link.call(lambda c: events.latest(c, name, limit))
        table = Table("when", "training", "it.", "what", "in words")
        for event in found:
            table.add_row(*_cells(event))
        console.print(table if found else "Nothing beyond the ordinary has happened yet.")
        while follow:
            time.sleep(1)
            last = found[-1].id if found else 0
            for event in (new := link.call(lambda c, i=last: events.latest(c, name, after=i))):
                console.print(" · ".join(_cells(event)), soft_wrap=True)
            found = new or found


def _cells(event: events.Event) -> tuple[str, ...]:
    when = event.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return when, event.training, f"{event.iteration:,}", event.kind, escape(event.text)
