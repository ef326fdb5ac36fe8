"""`classgan demo`: a whole class on this machine, watched live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deployments.cli.options import PlanOption, PresetOption
from deployments.cli.output import console, open_with_bar, worker_table
from deployments.cli.server.up import REFRESH, class_of, look_after, terminated_as_interrupt
from deployments.cli.trainings.plans import plan_from
from gan_core.errors import StoreUnreachable, TrainingError
from gan_core.units import TrainingState, counted

if TYPE_CHECKING:
    from psycopg import Connection

    from deployments.local.stack import LocalStack
    from gan_core.plan import Plan
    from gan_core.store.engine import Link
    from gan_core.store.viewers import ledger

commands = typer.Typer()


@commands.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, max=16, help="Student workers to start.")] = 3,
    preset: PresetOption = "demo",
    changes: PlanOption = None,
) -> None:
    """Train on digits with student workers on this machine; ends with a picture and a quality score."""
    run_demo(workers, plan_from(preset, changes))


PLAIN_EVERY = 5.0  # seconds between lines where there is no terminal to draw on, and between questions to Prefect


def run_demo(workers: int, plan: Plan) -> None:
    """Start the class, train, show, stop. Ctrl-C stops everything at any moment."""
    from gan_core.settings import settings
    from gan_core.store.coordinator import trainings

    started = time.monotonic()
    open_with_bar(plan, settings().cache)  # before anything is started: data that isn't there is the likeliest mistake
    with terminated_as_interrupt(), class_of(workers) as stack, _quick(stack) as link:
        taken = {row.name for row in link.call(trainings.every)}
        name = next(n for n in (f"demo-{i}" for i in range(1, 10_000)) if n not in taken)
        run = stack.start_training(name, plan.model_dump(mode="json"))
        console.print(f"Training [bold]{name}[/bold]. The Prefect UI shows it too: [link]{stack.ui}[/link]")
        _watch(stack, link, name, plan, run)
        _summarise(link, name, plan, started)
        _await_completion(stack, run)
    console.print("[green]Done.[/green]")


def _quick(stack: LocalStack) -> Link:
    """Fails at once while the database is away: whoever waits for it here is who has to start it again."""
    from gan_core.store.engine import Link

    return Link(stack.postgres.url(), should_stop=lambda: True)


def _watch(stack: LocalStack, link: Link, name: str, plan: Plan, run: str) -> None:
    """Show the training until it has ended.

    Raises:
        TrainingError: it failed; says why and where to look.
    """
    from gan_core.store.viewers import ledger

    said = asked = 0.0
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            look_after(stack)
            try:
                view, workers = link.call(lambda c: (ledger.overview(c, name), ledger.workers(c, name)))
                left = link.call(lambda c, v=view: _left(c, v, plan)) if view else ""
            except StoreUnreachable:  # it is started again in the next round
                view, workers, left = None, [], ""
            if view is not None:
                if console.is_terminal:
                    live.update(_picture(view, workers, plan, left))
                elif time.monotonic() - said > PLAIN_EVERY:
                    said = time.monotonic()
                    console.print(_line(view, workers, plan, left), soft_wrap=True, markup=False)
                if view.state is TrainingState.SUCCEEDED:
                    return
                if view.state in (TrainingState.FAILED, TrainingState.CANCELLED):
                    raise TrainingError(f"Training {name!r} ended as {view.state}: {view.message}. Logs: {stack.logs}")
            if time.monotonic() - asked > PLAIN_EVERY:
                asked = time.monotonic()
                state, message = stack.run_state(run)
                if state in ("Failed", "Crashed", "Cancelled"):
                    raise TrainingError(f"The run of {name!r} ended as {state}: {message}. Logs: {stack.logs}")
            time.sleep(REFRESH)


def _await_completion(stack: LocalStack, run: str) -> None:
    """When the training itself is done, its last figures and files are still being made: on a busy machine that takes half a minute."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and stack.run_state(run)[0] in ("Running", "Pending", "Scheduled", "Submitting"):
        time.sleep(REFRESH)


def _of(plan: Plan) -> str:
    """How many iterations there will be, if the plan says so."""
    return "" if plan.epochs else f" of {plan.iterations}"


def _left(connection: Connection, view: ledger.Overview, plan: Plan) -> str:
    from gan_core.status.throughput import seconds_left, time_left
    from gan_core.store.coordinator import trainings
    from gan_core.store.viewers import watching

    done = plan.progress(view.iteration, view.position, view.data_images or 1)
    speeds = watching.speeds(connection, trainings.get(connection, view.name).id)
    return time_left(seconds_left(done, view.images, speeds))


def _line(view: ledger.Overview, workers: Sequence[ledger.WorkerRow], plan: Plan, left: str) -> str:
    losses = f" · loss G {view.last.g_loss:.2f} D {view.last.d_loss:.2f}" if view.last else ""
    who = ", ".join(f"{w.name} {w.units}" for w in workers)
    message = f" · {view.message}" if view.message else ""
    return (
        f"{view.state} · iteration {view.iteration}{_of(plan)}{losses} · {view.images_per_second:,.0f} images/s"
        f" · left {left} · units: {who or 'none yet'}{message}"
    )


def _picture(view: ledger.Overview, workers: list[ledger.WorkerRow], plan: Plan, left: str) -> Group:
    facts = Table.grid(padding=(0, 2))
    facts.add_row(
        "iteration",
        f"{view.iteration}{_of(plan)}",
        ProgressBar(total=1, completed=plan.progress(view.iteration, view.position, view.data_images or 1), width=40),
    )
    if view.last:
        facts.add_row("losses", f"G {view.last.g_loss:.3f}", f"D {view.last.d_loss:.3f}")
        facts.add_row(
            "D is right on", f"real {view.last.d_real_accuracy:.0%}", f"generated {view.last.d_fake_accuracy:.0%}"
        )
    facts.add_row("speed", f"{view.images_per_second:,.0f} images/s", f"left {left}")
    return Group(
        Panel(facts, title=f"{view.name}: {view.state}", expand=False),
        worker_table(workers),
        Text(view.message, style="yellow"),
    )


def _summarise(link: Link, name: str, plan: Plan, started: float) -> None:
    """The quality score, the table, the files."""
    from gan_core.networks import generators
    from gan_core.quality.digits import PERFECT, READABLE, DigitsEvaluator, distance_of
    from gan_core.settings import settings
    from gan_core.store.coordinator import trainings
    from gan_core.store.viewers import ledger

    row = link.call(lambda c: trainings.get(c, name))
    folder = settings().outputs.resolve() / name
    lines = [("training", name)]
    with console.status("measuring quality"):
        deadline = time.monotonic() + 30
        path = folder / "generator.safetensors"
        while not (path.exists() and generators.load(path).iteration == row.iteration) and time.monotonic() < deadline:
            time.sleep(REFRESH)
        generator = generators.load(path)
        images = open_with_bar(plan, settings().cache)
        if plan.data == "digits":
            distance = distance_of(plan, generator.average, DigitsEvaluator(images))
            lines.append(("digit distance", f"{distance}  ({PERFECT} is perfect, about {READABLE:.0f} well readable)"))
    who = ", ".join(
        f"{w.name} {counted(w.units, 'unit')}" for w in link.call(lambda c: ledger.workers(c, name)) if w.units
    )
    lines += [
        ("iterations", f"{row.iteration} of {row.images / max(1, row.iteration):,.0f} images"),
        ("images seen", f"{row.images:,}"),
        ("who computed", who),
        ("time in all", str(timedelta(seconds=round(time.monotonic() - started)))),
        ("final samples", str(folder / "samples" / f"iteration_{row.iteration:06d}.png")),
        ("timeline", str(folder / "timeline.gif")),
        ("generator", f"{path}   (draw more: classgan generate {name})"),
    ]
    for what, value in lines:
        console.print(f"{what:<16}  {value}", soft_wrap=True)
