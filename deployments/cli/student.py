"""Commands of a student's machine: join, doctor, named."""

from typing import Annotated

import typer

commands = typer.Typer()
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine", metavar="NAME", help="Name of this machine, if you have several. Default: its host name."
    ),
]


@commands.command()
def join(
    invite: Annotated[
        str,
        typer.Argument(
            help="The invite line from your instructor. With -, it is read from the keyboard or a pipe, and other "
            "users of this machine can't see it."
        ),
    ],
    machine: MachineOption = None,
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST", help="The class's new host name or IP, if it has moved since the invite was made."
        ),
    ] = "",
    no_start: Annotated[
        bool, typer.Option("--no-start", help="Check and prepare only; print the line that starts the worker.")
    ] = False,
) -> None:
    """Join a class with this machine: check everything, then work until Ctrl-C. After an outage it goes on by itself."""
    from deployments.student import join

    join.join(join.line_of(invite), join.machine_name() if machine is None else machine, address, start=not no_start)


@commands.command()
def doctor() -> None:
    """Check whether this machine can take part: network, certificate, login, clock, disk, device, data. Join first."""
    from deployments.student.join import Membership, examine
    from gan_core.settings import settings

    mine = Membership(settings().home)
    examine(mine.invite(), mine)


@commands.command()
def named(choice: Annotated[bool, typer.Argument(metavar="yes|no", help="yes shows your name, no hides it.")]) -> None:
    """Decide whether the model cards that the class publishes may show your name. Default: no."""
    from deployments.student.join import be_named

    be_named(choice)
