"""Commands of a student's machine: join, doctor, named."""

from typing import Annotated

import typer

commands = typer.Typer()
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine", metavar="NAME", help="What this machine is called, if you have several. Left out: its host name."
    ),
]


@commands.command()
def join(
    invite: Annotated[
        str,
        typer.Argument(
            help="The line from your instructor; - reads it from the keyboard or a pipe, unseen by others on this machine."
        ),
    ],
    machine: MachineOption = None,
    address: Annotated[
        str, typer.Option(metavar="HOST", help="Where the class is now, if it has moved since the invite was made.")
    ] = "",
    no_start: Annotated[
        bool, typer.Option("--no-start", help="Check and prepare only; print the line that starts the worker.")
    ] = False,
) -> None:
    """Join a class with this machine: check everything, then work until Ctrl-C. Outages are waited for."""
    from deployments.student import join

    join.join(join.line_of(invite), join.machine_name() if machine is None else machine, address, start=not no_start)


@commands.command()
def doctor() -> None:
    """Check whether this machine, which has joined, can take part: network, certificate, login, clock, disk, device, data."""
    from deployments.student.join import Membership, examine
    from gan_core.settings import settings

    mine = Membership(settings().home)
    examine(mine.invite(), mine)


@commands.command()
def named(choice: Annotated[bool, typer.Argument(metavar="yes|no", help="Whether you want it.")]) -> None:
    """Say whether your name may stand in the card of a model that the class publishes. Until you do, it doesn't."""
    from deployments.student.join import be_named

    be_named(choice)
