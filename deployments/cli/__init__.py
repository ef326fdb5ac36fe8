"""`classgan …`: parses and calls. Heavy imports happen inside the commands, so that --help answers at once."""

import sys
from io import TextIOWrapper

import typer

from deployments.cli import help as help_
from deployments.cli import student
from deployments.cli.results import generators, grades, models, monitor, runs, status
from deployments.cli.server import demo, kubernetes, metrics, setup, students, up
from deployments.cli.trainings import control, data, plans, queue
from deployments.prefect_settings import be_untracked
from deployments.troubleshooting import more
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, TextIOWrapper
        ):  # a Windows code page may lack a character: a question mark is no traceback
            stream.reconfigure(errors="replace")
    try:
        app()
    except GanError as exc:
        print(f"classgan: {exc}\n{more(exc.anchor())}", file=sys.stderr)
        sys.exit(1)
    except OSError as exc:
        if exc.filename is None:
            raise
        sentence = f"{exc.filename}: {exc.strerror}. Name another file or folder, or make room there."
        print(f"classgan: {sentence}\n{more('files')}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("classgan: stopped.", file=sys.stderr)
        sys.exit(130)


def _add(panel: str, *groups: typer.Typer | tuple[str, typer.Typer]) -> None:
    """Add commands, and groups of commands by name, under this heading of `classgan --help`."""
    for group in groups:
        if isinstance(group, tuple):
            app.add_typer(group[1], name=group[0], rich_help_panel=panel)
        else:
            for entry in (*group.registered_commands, *group.registered_groups):
                entry.rich_help_panel = panel
            app.add_typer(group)


_add(
    "A class on this machine, or on many",
    demo.commands,
    up.commands,
    setup.commands,
    ("students", students.commands),
    ("kubernetes", kubernetes.commands),
    ("metrics", metrics.commands),
)
_add("A student's machine", student.commands)
_add("Trainings", plans.commands, queue.commands, control.commands, ("data", data.commands))
_add(
    "What goes on, and what came of it",
    status.commands,
    monitor.commands,
    generators.commands,
    ("models", models.commands),
    ("runs", runs.commands),
    grades.commands,
)
_add("Help", help_.commands)
