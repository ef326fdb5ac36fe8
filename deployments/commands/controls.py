"""`classgan pause`, `resume`, `cancel`, `change`: a person's word on a training."""

import getpass
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rich.console import Console

from deployments.commands.plans import changes_from
from deployments.commands.reports import database_url
from gan_core.errors import PlanError
from gan_core.settings import settings
from gan_core.store.engine import connect
from tasks import control

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
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_SSL_CERT_FILE, PREFECT_API_URL, temporary_settings

    from deployments.local_stack import LocalStack

    if settings().database_url:
        yield
        return
    stack = LocalStack(settings().home, settings().outputs).attach()
    found = stack.reach()
    reach = {
        PREFECT_API_URL: found["PREFECT_API_URL"],
        PREFECT_API_AUTH_STRING: found.get("PREFECT_API_AUTH_STRING"),
        PREFECT_API_SSL_CERT_FILE: found.get("PREFECT_API_SSL_CERT_FILE", ""),
    }
    with temporary_settings({name: value for name, value in reach.items() if value}):
        yield
