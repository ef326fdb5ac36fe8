"""Commands about the queue: what waits for which machines, in which order, and why."""

from typing import Annotated

import typer

from deployments.cli.options import PlanOption

queue = typer.Typer()
order = typer.Typer(invoke_without_command=True, help="Show what runs and what waits, where it stands, and why.")

Name = Annotated[str, typer.Argument(help="The training's name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


@queue.command()
def submit(
    plan: Annotated[str, typer.Argument(help="A YAML or JSON file with a plan, or a preset: demo, dcgan, better.")],
    name: Annotated[str, typer.Option(help="The training's name; the file's, if left out.")] = "",
    priority: Annotated[int | None, typer.Option(help="The highest goes first.")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs that each worker must have.")] = None,
    memory: Annotated[int | None, typer.Option(help="Memory that each of those GPUs must have, in MB.")] = None,
    min_workers: Annotated[int | None, typer.Option(help="Workers at the same time, or none at all.")] = None,
    max_workers: Annotated[int | None, typer.Option(help="No more workers than this.")] = None,
    changes: PlanOption = None,
    key: Annotated[str, typer.Option(help="Any text: submitted again with the same key, it is one training.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Take a training into the queue; it starts by itself when it is its turn and its machines are there."""
    from deployments.commands.queue import submit_training

    asked = {"priority": priority, "gpus": gpus, "memory_mb": memory, "min_workers": min_workers}
    submit_training(plan, name, changes or [], asked | {"max_workers": max_workers}, key, as_json)


@order.callback()
def show(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show what runs and what waits: position, when it may start, and why it waits."""
    from deployments.commands.queue import print_queue

    if context.invoked_subcommand is None:
        print_queue(as_json)


@order.command("move")
def move(
    name: Name,
    top: Annotated[bool, typer.Option("--top", help="Before everybody who waits.")] = False,
    after: Annotated[str, typer.Option(metavar="OTHER", help="Right behind this one.")] = "",
) -> None:
    """Move a waiting training to another place in the queue; it takes on the priority of that place."""
    from deployments.commands.queue import move_training

    move_training(name, top, after)


@queue.command()
def priority(
    name: Name, number: Annotated[int, typer.Argument(min=-1_000, max=1_000, help="The highest goes first.")]
) -> None:
    """Give a training another priority, also while it runs: machines change over at the end of their units."""
    from deployments.commands.queue import set_priority

    set_priority(name, number)


@queue.command()
def explain(name: Annotated[str, typer.Argument(help="A training or a worker.")]) -> None:
    """Say why a training waits, or why a worker works for what it does; with the decisions of the last days."""
    from deployments.commands.queue import explain as say

    say(name)


@queue.command()
def workers(
    drain: Annotated[str, typer.Option(metavar="WORKER", help="Give this one nothing new.")] = "",
    undrain: Annotated[str, typer.Option(metavar="WORKER", help="Give it work again.")] = "",
) -> None:
    """Show the workers: whether they are there, what they did, and their last message."""
    from deployments.commands.queue import print_workers

    print_workers(drain, undrain)


queue.add_typer(order, name="queue")
