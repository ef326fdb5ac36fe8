"""Commands that look: how trainings stand, who computes, what happened. Each has --json, for programs."""

from typing import Annotated

import typer

from deployments.cli.options import JsonOption

watch = typer.Typer()

EveryTraining = Annotated[str, typer.Argument(help="A training; all of them if left out.")]


@watch.command()
def status(name: EveryTraining = "", as_json: JsonOption = False) -> None:
    """Show how trainings stand, and who computes."""
    from deployments.commands.watch import print_status

    print_status(name, as_json)


@watch.command()
def monitor(
    name: Annotated[str, typer.Argument(help="A training; the one that runs, or the newest, if left out.")] = "",
    worker: Annotated[
        str, typer.Option("--worker", "-w", metavar="NAME", help="Only this machine, or this student's machines.")
    ] = "",
    refresh: Annotated[float, typer.Option(min=0.2, max=3_600, help="Seconds between two looks.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON a look.")] = False,
) -> None:
    """Watch a training, its machines and the queue live, until Ctrl-C. Without a terminal: one plain line a look."""
    from deployments.commands.monitor import watch_live

    watch_live(name, worker, refresh, as_json)


@watch.command()
def leaderboard(as_json: JsonOption = False) -> None:
    """Show who has computed how much, on the instructor's machine or on one that has joined."""
    from deployments.commands.watch import print_leaderboard

    print_leaderboard(as_json)


@watch.command()
def my(as_json: JsonOption = False) -> None:
    """Show what is yours: units, images, place, and each machine's last message. On a machine that has joined."""
    from deployments.commands.watch import print_mine

    print_mine(as_json)


@watch.command()
def events(
    name: EveryTraining = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=5_000, help="How many, the newest.")] = 30,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and show new ones, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON an event.")] = False,
) -> None:
    """Show what happened beyond the ordinary: machines lost, units taken over, late answers, changes of the plan."""
    from deployments.commands.watch import print_events

    print_events(name, limit, follow, as_json)


@watch.command()
def dashboard(
    listen: Annotated[
        str, typer.Option(help="Address to bind to; 0.0.0.0 lets the whole network look, without a login.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8501,
) -> None:
    """Serve the class page until Ctrl-C: leaderboard, samples, curves, health, what slows the training down."""
    from deployments.dashboard.serving import serve

    serve(listen, port)
