"""`classgan monitor` and `dashboard`: a training and its machines, live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deployments.cli.output import console, live_table, presence_cell, print_json, word
from gan_core.errors import StackError
from gan_core.units import Presence, TrainingState, counted

if TYPE_CHECKING:
    from psycopg import Connection

    from gan_core.plan import Plan
    from gan_core.store.viewers import ledger, watching

commands = typer.Typer()


@commands.command()
def monitor(
    name: Annotated[str, typer.Argument(help="A training. Default: the one that runs, or else the newest.")] = "",
    worker: Annotated[
        str, typer.Option("--worker", "-w", metavar="NAME", help="Only this machine, or this student's machines.")
    ] = "",
    refresh: Annotated[float, typer.Option(min=0.2, max=3_600, help="Seconds between two updates.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each update.")] = False,
) -> None:
    """Watch a training, its machines and the queue live, until the training ends or Ctrl-C. Without a terminal, it prints one plain line for each update."""
    from deployments.local.database import database_url
    from gan_core.store.engine import Link
    from gan_core.store.viewers import ledger

    try:
        with database_url(live=True) as url, Link(url) as link:
            chosen = link.call(lambda c: _chosen(c, name))
            if worker and not link.call(lambda c: ledger.machines_called(c, worker)):
                raise StackError(
                    f"No machine and no student is called {worker!r}. `classgan status` names those that are."
                )
            _go_on(lambda: link.call(lambda c: _look(c, chosen, worker)), refresh, as_json)
    except KeyboardInterrupt:
        return


@commands.command()
def dashboard(
    listen: Annotated[
        str, typer.Option(help="Address to bind to. 0.0.0.0 opens the page to the whole network, without a login.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8501,
) -> None:
    """Serve the class page until Ctrl-C: leaderboard, samples, curves, health, what slows the training down."""
    from deployments.dashboard.serving import serve

    serve(listen, port)


AROUND = 16  # lines of the screen that are neither a machine nor the queue
QUEUE = 5  # trainings that wait, of which it shows as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything that one look shows."""

    overview: ledger.Overview
    plan: Plan
    left: tuple[float, float] | None  # seconds, at best and at worst
    machines: list[watching.MachineView]
    queue: list[dict[str, Any]]  # what waits, as `classgan queue --json` has it, the first in line first

    @property
    def progress(self) -> float:
        return self.plan.progress(self.overview.iteration, self.overview.position, self.overview.data_images or 1)


def _chosen(connection: Connection, name: str) -> str:
    from gan_core.store.coordinator import trainings

    if name:
        return trainings.get(connection, name).name
    rows = trainings.every(connection)
    if not rows:
        raise StackError("No training yet. Start one in the Prefect UI (deployment `train`), or with `classgan demo`.")
    return next((row for row in rows if row.state is TrainingState.RUNNING), rows[0]).name


def _look(connection: Connection, name: str, worker: str) -> Look:
    from gan_core.plan import Plan
    from gan_core.scheduler.survey import Rules, queue_rows, survey
    from gan_core.settings import settings
    from gan_core.status.throughput import seconds_left
    from gan_core.store.coordinator import trainings
    from gan_core.store.viewers import ledger, watching

    row, overview = trainings.get(connection, name), ledger.overview(connection, name)
    assert overview is not None, "trainings are never deleted"
    plan = Plan.model_validate(row.plan)
    machines = watching.machines(connection, row.id)
    if worker:
        wanted = ledger.machines_called(connection, worker)
        machines = [machine for machine in machines if machine.id in wanted]
    progress = plan.progress(overview.iteration, overview.position, overview.data_images or 1)
    left = seconds_left(progress, overview.images, watching.speeds(connection, row.id))
    waiting = [r for r in queue_rows(survey(connection, Rules.of(settings()))) if r["position"] is not None]
    return Look(overview=overview, plan=plan, left=left, machines=machines, queue=waiting)


def _go_on(look: Callable[[], Look], refresh: float, as_json: bool) -> None:
    """Show one look after the other; the last one is that of a training which is over."""

    def looks() -> Iterator[Look]:
        yield (seen := look())
        while not seen.overview.state.is_over:
            sleep(refresh)
            yield (seen := look())

    if as_json or not console.is_terminal:
        for seen in looks():
            if as_json:
                print_json(_facts(seen), lines=True)
            else:
                console.print(_line(seen), soft_wrap=True, markup=False, highlight=False)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for seen in looks():
            live.update(_picture(seen), refresh=True)


def _facts(seen: Look) -> dict[str, object]:
    """One look as JSON."""
    from gan_core.status.summary import summary

    return {
        "at": datetime.now(UTC),
        **asdict(seen.overview),
        "summary": summary(seen.overview),
        "progress": round(seen.progress, 4),
        "seconds_left": seen.left,
        "machines": [{**asdict(m), "presence": m.presence, "health": _health(m)} for m in seen.machines],
        "queue": seen.queue,
    }


def _line(seen: Look) -> str:
    view, last = seen.overview, seen.overview.last
    losses = f" · loss G {last.g_loss:.2f} D {last.d_loss:.2f}" if last else ""
    online = sum(m.presence is Presence.ONLINE for m in seen.machines)
    only = "".join(
        f" · {m.name}: {counted(m.images, 'image')}, {_health(m)}" for m in seen.machines[:1] if len(seen.machines) == 1
    )
    left = f" · left {_left(seen)}" if _left(seen) else ""
    waiting = f" · {len(seen.queue)} in the queue" if seen.queue else ""
    return (
        f"{view.name} · {view.state} · iteration {view.iteration:,}{losses} · {view.images_per_second:,.0f} images/s"
        f" · {online} of {counted(len(seen.machines), 'machine')} online{left}{only}{waiting}"
    )


def _left(seen: Look) -> str:
    from gan_core.status.throughput import time_left

    return time_left(seen.left) if seen.overview.state is TrainingState.RUNNING else ""


def _health(machine: watching.MachineView) -> str:
    from gan_core.status.throughput import health

    busy = machine.seconds_in_hand or 0.0
    return health(machine.presence, machine.seconds_silent, machine.units_in_hand, busy, machine.message)


def _picture(seen: Look) -> Group:
    from gan_core.status.summary import summary

    view, facts = seen.overview, Table.grid(padding=(0, 2))
    of = "" if seen.plan.epochs else f" of {seen.plan.iterations:,}"
    facts.add_row("iteration", f"{view.iteration:,}{of}", ProgressBar(total=1, completed=seen.progress, width=24))
    if view.last:
        facts.add_row("losses", f"G {view.last.g_loss:.3f}", f"D {view.last.d_loss:.3f}")
        right = (f"real {view.last.d_real_accuracy:.0%}", f"generated {view.last.d_fake_accuracy:.0%}")
        facts.add_row("D is right on", *right)
    facts.add_row("speed", f"{view.images_per_second:,.0f} images/s", f"{counted(view.images, 'image')} seen")
    if left := _left(seen):
        facts.add_row("left", left, "")
    return Group(
        Panel(facts, title=f"{view.name}: {view.state}", expand=False),
        Text(summary(view)),
        *_queue(seen.queue),
        _table(seen.machines, max(3, console.height - AROUND - min(len(seen.queue), QUEUE + 1))),
        Text("" if view.state.is_over else "Ctrl-C ends it.", style="dim"),
    )


def _queue(waiting: list[dict[str, Any]]) -> list[Text]:
    """A line for each of the first that wait; none if nothing does."""
    lines = [Text(f"{r['position']}. {r['name']}: {r['reason']}", no_wrap=True, overflow="ellipsis") for r in waiting]
    more = len(lines) - QUEUE
    return lines[:QUEUE] + (
        [Text(f"… and {more:,} more {'waits' if more == 1 else 'wait'}: classgan queue", style="dim")]
        if more > 0
        else []
    )


def _table(machines: list[watching.MachineView], room: int) -> Group:
    table = live_table("machine", "state", "units", "images", "img/s", "how it is", words=["machine", "how it is"])
    for m in machines[:room]:
        shown = (f"{m.units:,}", f"{m.images:,}", f"{m.images_per_second or 0:,.0f}")
        table.add_row(word(m.name), presence_cell(m.presence), *shown, word(_health(m)))
    hidden = len(machines) - room
    return Group(table, Text(f"… and {hidden:,} more" if hidden > 0 else "", style="dim"))
