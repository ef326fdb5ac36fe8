"""`classgan …`: parses and calls. Heavy imports happen inside the commands, so that --help answers at once."""

import sys
from typing import Annotated

import typer

from deployments.cli.data import data
from deployments.cli.kubernetes import kubernetes
from deployments.cli.metrics import metrics
from deployments.cli.options import PlanOption, PresetOption
from deployments.cli.queue import queue
from deployments.cli.runs import models, runs
from deployments.cli.students import students
from deployments.cli.trainings import trainings
from deployments.cli.watch import watch
from deployments.commands.help import more
from deployments.prefect_settings import be_untracked
from gan_core.errors import GanError

app = typer.Typer(
    name="classgan",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train one GAN on the machines of a whole class.",
    epilog="Start here: [bold]classgan demo[/bold] trains on handwritten digits with three workers on this machine, in about three minutes.",
)


def main() -> None:
    """Entry point: our own errors are a sentence and exit code 1, not a traceback."""
    be_untracked()
    try:
        app()
    except GanError as exc:
        print(f"classgan: {exc}\n{more(exc.anchor())}", file=sys.stderr)
        sys.exit(1)
    except OSError as exc:
        if exc.filename is None:
            raise
        sentence = f"{exc.filename}: {exc.strerror}. Name another place, or make room there."
        print(f"classgan: {sentence}\n{more('files')}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("classgan: stopped.", file=sys.stderr)
        sys.exit(130)


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, max=16, help="Student workers to start.")] = 3,
    preset: PresetOption = "demo",
    changes: PlanOption = None,
) -> None:
    """Train on digits with student workers on this machine; ends with a picture and a quality figure."""
    from deployments.commands.demo import run_demo
    from deployments.commands.plans import plan_from

    run_demo(workers, plan_from(preset, changes))


@app.command()
def init(
    addresses: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            "-a",
            metavar="HOST",
            help="Host name or IP by which students reach this machine; may be repeated, the first goes into invites. Left out: this machine's address in its network.",
        ),
    ] = None,
    listen: Annotated[str, typer.Option(help="Address that the servers bind to.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the class server.")] = 4242,
    database_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of PostgreSQL.")] = 5442,
    database: Annotated[
        str, typer.Option(metavar="URL", help="An existing PostgreSQL, as its owner; left out, one is run here.")
    ] = "",
) -> None:
    """Make a class that students join from their own machines: certificate, logins, database. May be repeated.

    Then: `classgan students add`, and `classgan up`.
    """
    from deployments.setting_up import make_class

    make_class(addresses or [], listen, port, database_port, database)


MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine", metavar="NAME", help="What this machine is called, if you have several. Left out: its host name."
    ),
]


@app.command()
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
    from deployments import joining

    joining.join(
        joining.line_of(invite), joining.machine_name() if machine is None else machine, address, start=not no_start
    )


@app.command()
def doctor() -> None:
    """Check whether this machine, which has joined, can take part: network, certificate, login, clock, disk, device, data."""
    from deployments.joining import Membership, examine
    from gan_core.settings import settings

    mine = Membership(settings().home)
    examine(mine.invite(), mine)


@app.command()
def named(choice: Annotated[bool, typer.Argument(metavar="yes|no", help="Whether you want it.")]) -> None:
    """Say whether your name may stand in the card of a model that the class publishes. Until you do, it doesn't."""
    from deployments.joining import be_named

    be_named(choice)


@app.command()
def up(
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=16,
            help="Student workers to start on this machine; 3, or none in a class that `classgan init` made.",
        ),
    ] = None,
) -> None:
    """Start the class and keep it up until Ctrl-C; trainings are started in the Prefect UI."""
    from deployments.commands.demo import stay_up

    stay_up(workers)


@app.command()
def worker(name: Annotated[str, typer.Argument(help="Your name: small letters, digits and underscores.")]) -> None:
    """Join the class that runs on this machine (`classgan up`) with one more worker; Ctrl-C finishes its unit and stops."""
    from deployments.commands.demo import join_here

    join_here(name)


@app.command("help")
def explain(
    word: Annotated[str, typer.Argument(help="What the last line of a message names; all words if left out.")] = "",
) -> None:
    """Explain an error or a check of `doctor`: what it means, why it comes, what to do."""
    from deployments.commands.help import print_section

    print_section(word)


@app.command()
def migrate() -> None:
    """Make or update the tables in the database that CLASSGAN_DATABASE_URL names."""
    from deployments.commands.reports import database_url
    from gan_core.store.migrate import migrate as run

    with database_url() as url:
        run(url)
    typer.echo("The database is up to date.")


app.add_typer(watch)
app.add_typer(trainings)
app.add_typer(queue)
app.add_typer(students, name="students")
app.add_typer(kubernetes, name="kubernetes")
app.add_typer(data, name="data")
app.add_typer(runs, name="runs")
app.add_typer(models, name="models")
app.add_typer(metrics, name="metrics")
