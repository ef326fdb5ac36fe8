"""`classgan pause`, `resume`, `cancel`, `change`, `alarm`: commands that act on a training."""

from __future__ import annotations

import getpass
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, cast
from uuid import UUID

import typer

from deployments.cli.options import PlanOption
from deployments.cli.output import console, say
from deployments.cli.trainings.plans import changes_from
from deployments.prefect_settings import keep_to
from gan_core.errors import PlanError

if TYPE_CHECKING:
    from deployments.local.stack import LocalStack

commands = typer.Typer()
NameArgument = Annotated[str, typer.Argument(help="The training's name.")]


@commands.command()
def pause(name: NameArgument) -> None:
    """Pause a training: no more units are handed out, leased units are still accepted. `classgan resume` continues it."""
    from deployments.local.database import database_url
    from gan_core.store.engine import connect
    from tasks import control

    with database_url(live=True) as url, connect(url) as connection:
        say(control.pause(connection, name, getpass.getuser()))


@commands.command()
def resume(name: NameArgument) -> None:
    """Continue a training that is paused, has failed, or has lost its coordinator, exactly where it stopped."""
    from deployments.local.database import database_url
    from gan_core.store.engine import connect
    from tasks import control

    with database_url() as url, connect(url) as connection, _prefect():
        say(control.resume(connection, name, getpass.getuser()))


@commands.command()
def cancel(name: NameArgument) -> None:
    """End a training for good. Credit, samples and the generator stay."""
    from deployments.local.database import database_url
    from gan_core.store.engine import connect
    from tasks import control

    with database_url(live=True) as url, connect(url) as connection:
        say(control.cancel(connection, name, getpass.getuser()))


@commands.command()
def change(name: NameArgument, changes: PlanOption = None) -> None:
    """Change the plan of a training from its next iteration on: learning rates, quorum, intervals; not data or model."""
    change_training(name, changes or [])


@commands.command()
def alarm(
    url: Annotated[
        str,
        typer.Argument(
            help="Webhook of Slack, Mattermost, Teams or your own. If you leave it out, the alarm is removed.",
            show_default=False,
        ),
    ] = "",
    minutes: Annotated[
        float, typer.Option(min=1, max=24 * 60, help="Minutes without a closed iteration after which the alarm comes.")
    ] = 10,
) -> None:
    """Let Prefect call a webhook when a training stops moving although nobody paused or ended it."""
    set_alarm(url, minutes)


ALARM = "classgan-alarm"  # the automation in Prefect, and the block with the address


def change_training(name: str, changes: Sequence[str]) -> None:
    from deployments.local.database import database_url
    from gan_core.store.engine import connect
    from tasks import control

    values = changes_from(changes)
    if not values:
        raise PlanError("Nothing to change: name a knob, for example --set quorum=3750. `classgan plan` lists them.")
    with database_url(live=True) as url, connect(url) as connection:
        say(control.change(connection, name, values, getpass.getuser()))


@contextmanager
def _prefect() -> Generator[None]:
    """Speak to the Prefect server of the class on this machine, or to the one that PREFECT_API_URL names.

    Raises:
        StackError: no class runs here.
    """
    from deployments.local.stack import LocalStack
    from gan_core.settings import settings

    keep_to(settings().home)
    if settings().database_url:
        yield
        return
    with reaching(LocalStack(settings().home, settings().outputs).attach()):
        yield


@contextmanager
def reaching(stack: LocalStack) -> Generator[None]:
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


def set_alarm(url: str, minutes: float) -> None:
    """Let Prefect call this address when a training has not moved for so long; "" takes the alarm away.

    Raises:
        StackError: no class runs here.
    """
    from gan_core.settings import settings

    keep_to(settings().home)
    from prefect.automations import Automation, EventTrigger, Posture
    from prefect.blocks.webhook import Webhook
    from prefect.events.actions import CallWebhook

    from tasks.background import prefect_events

    with _prefect():
        with suppress(ValueError):  # there is none yet
            cast(Automation, Automation.read(name=ALARM)).delete()
        if not url:
            console.print("The alarm is off.")
            return
        block = cast(
            UUID, Webhook(method="POST", url=url).save(ALARM, overwrite=True)
        )  # Prefect's types name its async twin, too
        text = f"A training has not moved for {minutes:g} {'minute' if minutes == 1 else 'minutes'}. `classgan status` says what it waits for."
        Automation(
            name=ALARM,
            description="Made by `classgan alarm`.",
            trigger=EventTrigger(
                match={"prefect.resource.id": "classgan.training.*"},
                for_each={"prefect.resource.id"},
                after={prefect_events.MOVED},
                expect={prefect_events.MOVED, prefect_events.ENDED},
                posture=Posture.Proactive,
                threshold=1,
                within=timedelta(minutes=minutes),
            ),
            actions=[CallWebhook(block_document_id=block, payload=json.dumps({"text": text}))],
        ).create()
    console.print(
        f"When a training has not moved for {minutes:g} {'minute' if minutes == 1 else 'minutes'}, Prefect calls this address once."
    )
