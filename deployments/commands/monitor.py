"""`classgan monitor`: a training and its machines, live."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from time import sleep
from typing import Any

from psycopg import Connection
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deployments.commands.queue import queue_rows
from deployments.commands.reports import database_url
from deployments.commands.watch import console, figures, presence_cell, print_json, word
from gan_core.errors import StackError
from gan_core.pace import Presence, health, seconds_left, spoken
from gan_core.plan import Plan
from gan_core.scheduling import Rules, survey
from gan_core.settings import settings
from gan_core.situation import sentence
from gan_core.store import ledger, trainings, watching
from gan_core.store.engine import Link
from gan_core.units import TrainingState

AROUND = 16  # lines of the screen that are neither a machine nor the queue
QUEUE = 5  # trainings that wait, of which it shows as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything that one look shows."""

    overview: ledger.Overview
    plan: Plan
    left: tuple[float, float] | None  # seconds, at best and at worst
    machines: list[watching.Machine]
    queue: list[dict[str, Any]]  # what waits, as `classgan queue --json` has it, the first in line first

    @property
    def progress(self) -> float:
        return self.plan.progress(self.overview.iteration, self.overview.position, self.overview.data_images or 1)


def watch_live(name: str, worker: str, refresh: float, as_json: bool) -> None:
    """Show it until Ctrl-C, which is no error here.

    Raises:
        TrainingError, StackError: there is no such training, or no machine of this name.
    """
    try:
        with database_url() as url, Link(url) as link:
            chosen = link.call(lambda c: _chosen(c, name))
            if worker and not link.call(lambda c: ledger.machines_called(c, worker)):
                raise StackError(
                    f"No machine and no student is called {worker!r}. `classgan status` names those that are."
                )
            _go_on(lambda: link.call(lambda c: _look(c, chosen, worker)), refresh, as_json)
    except KeyboardInterrupt:
        return


def _chosen(connection: Connection, name: str) -> str:
    if name:
        return trainings.get(connection, name).name
    rows = trainings.every(connection)
    if not rows:
        raise StackError("No training yet. Start one in the Prefect UI (deployment `train`), or with `classgan demo`.")
    return next((row for row in rows if row.state is TrainingState.RUNNING), rows[0]).name


def _look(connection: Connection, name: str, worker: str) -> Look:
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
    if as_json or not console.is_terminal:
        while True:
            seen = look()
            if as_json:
                print_json(_facts(seen), lines=True)
            else:
                console.print(_line(seen), soft_wrap=True, markup=False, highlight=False)
            sleep(refresh)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_picture(look()), refresh=True)
            sleep(refresh)


def _facts(seen: Look) -> dict[str, object]:
    """One look as JSON."""
    return {
        "at": datetime.now(UTC),
        **asdict(seen.overview),
        "situation": sentence(seen.overview),
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
        f" · {m.name}: {m.images:,} images, {_health(m)}" for m in seen.machines[:1] if len(seen.machines) == 1
    )
    waiting = f" · {len(seen.queue)} in the queue" if seen.queue else ""
    return (
        f"{view.name} · {view.state} · iteration {view.iteration:,}{losses} · {view.images_per_second:,.0f} images/s"
        f" · {online} of {len(seen.machines)} machines online · left {_left(seen)}{only}{waiting}"
    )


def _left(seen: Look) -> str:
    if seen.left is None or seen.overview.state is not TrainingState.RUNNING:
        return "unknown"
    best, worst = (spoken(seconds) for seconds in seen.left)
    return best if best == worst else f"{best} to {worst}"


def _health(machine: watching.Machine) -> str:
    busy = machine.seconds_in_hand or 0.0
    return health(machine.presence, machine.seconds_silent, machine.units_in_hand, busy, machine.message)


def _picture(seen: Look) -> Group:
    view, facts = seen.overview, Table.grid(padding=(0, 2))
    of = "" if seen.plan.epochs else f" of {seen.plan.iterations:,}"
    facts.add_row("iteration", f"{view.iteration:,}{of}", ProgressBar(total=1, completed=seen.progress, width=24))
    if view.last:
        facts.add_row("losses", f"G {view.last.g_loss:.3f}", f"D {view.last.d_loss:.3f}")
        right = (f"real {view.last.d_real_accuracy:.0%}", f"generated {view.last.d_fake_accuracy:.0%}")
        facts.add_row("D is right on", *right)
    facts.add_row("speed", f"{view.images_per_second:,.0f} images/s", f"{view.images:,} images seen")
    facts.add_row("left", _left(seen), "")
    return Group(
        Panel(facts, title=f"{view.name}: {view.state}", expand=False),
        Text(sentence(view)),
        *_queue(seen.queue),
        _table(seen.machines, max(3, console.height - AROUND - min(len(seen.queue), QUEUE + 1))),
        Text("Ctrl-C ends it.", style="dim"),
    )


def _queue(waiting: list[dict[str, Any]]) -> list[Text]:
    """A line for each of the first that wait; none if nothing does."""
    lines = [Text(f"{r['position']}. {r['name']}: {r['reason']}", no_wrap=True, overflow="ellipsis") for r in waiting]
    more = len(lines) - QUEUE
    return lines[:QUEUE] + ([Text(f"… and {more:,} more wait: classgan queue", style="dim")] if more > 0 else [])


def _table(machines: list[watching.Machine], room: int) -> Group:
    table = figures("machine", "state", "units", "images", "img/s", "how it is", words=["machine", "how it is"])
    for m in machines[:room]:
        counted = (f"{m.units:,}", f"{m.images:,}", f"{m.images_per_second or 0:,.0f}")
        table.add_row(word(m.name), presence_cell(m.presence), *counted, word(_health(m)))
    hidden = len(machines) - room
    return Group(table, Text(f"… and {hidden:,} more" if hidden > 0 else "", style="dim"))
