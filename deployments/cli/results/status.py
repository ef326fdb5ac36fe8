"""`classgan status`, `leaderboard`, `my`, `events`: what there is to see, for people and, as JSON, for programs."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.text import Text

from deployments.cli.options import JsonOption
from deployments.cli.output import console, presence_cell, print_json, say, show, worker_table
from deployments.cli.tables import Listing
from gan_core.errors import StoreUnreachable
from gan_core.units import Presence, counted

if TYPE_CHECKING:
    from psycopg import Connection

    from gan_core.store.coordinator import events

commands = typer.Typer()
EveryTraining = Annotated[str, typer.Argument(help="A training. Default: all.")]


@commands.command()
def status(name: EveryTraining = "", as_json: JsonOption = False) -> None:
    """Show what each training does or waits for, and who computes."""
    from deployments.local.database import database_url
    from gan_core.status.summary import summary
    from gan_core.store.coordinator import evaluations, trainings
    from gan_core.store.viewers import ledger

    with database_url(live=True) as url, present(url) as connection:
        rows = [trainings.get(connection, name)] if name else trainings.every(connection)
        views = [view for row in rows if (view := ledger.overview(connection, row.name))]
        workers = ledger.workers(connection, name)
        measured = {row.name: evaluations.of_training(connection, row.id) for row in rows}
    if as_json:
        told = [{**asdict(view), "summary": summary(view), "quality": measured[view.name][-1:]} for view in views]
        print_json({"trainings": told, "workers": workers})
        return
    if not rows:
        say("No training yet. Start one in the Prefect UI (deployment `train`), or with `classgan demo`.")
        return
    table = Listing("training", "state", "it.", "images", "img/s", "G loss", "D loss", spare=["D loss", "G loss"])
    for view in views:
        losses = (f"{view.last.g_loss:.2f}", f"{view.last.d_loss:.2f}") if view.last else ("", "")
        speed = f"{view.images_per_second:,.0f}"
        table.add(view.name, view.state, f"{view.iteration:,}", f"{view.images:,}", speed, *losses)
    show(table)
    for view in views:
        say(f"[bold]{view.name}[/bold] {escape(summary(view))}")
        if history := measured[view.name]:
            say(f"Quality {history[-1].sentence()}.")
            if warning := evaluations.collapse(history):
                say(warning, "yellow")
    show(worker_table(workers))


@commands.command()
def leaderboard(as_json: JsonOption = False) -> None:
    """Show who has computed how much, on the instructor's machine or on one that has joined."""
    from deployments.local.database import database_url
    from gan_core.store import student
    from gan_core.store.viewers import watching

    if _has_joined():
        with student.reach(_own_url()) as home:
            standings = student.leaderboard(home)
    else:
        with database_url() as url, watching.viewer(url) as connection:
            standings = watching.leaderboard(connection)
    if as_json:
        print_json(standings)
        return
    if not standings:
        console.print("No students yet. Let them in: classgan students add NAME")
        return
    columns = ("place", "name", "state", "units", "images", "machines", "img/s")
    table = Listing(*columns, folds=["name"], spare=["machines", "units"], title="name")
    for place, row in enumerate(standings, 1):
        name = Text(f"{row.display_name} (you)", "bold") if row.is_me else Text(row.display_name)
        speed = f"{row.images_per_second:,.0f}"
        shown = (f"{row.units:,}", f"{row.images:,}", f"{row.machines:,}", speed)
        table.add(str(place), name, presence_cell(row.presence), *shown)
    show(table)


@commands.command()
def my(as_json: JsonOption = False) -> None:
    """Show your own units, images and place, and each machine's last message. Only on a machine that has joined."""
    from gan_core.status.throughput import spoken
    from gan_core.store import student

    with student.reach(_own_url()) as home:
        units, images, seconds = student.my_credit(home)
        machines = student.my_machines(home)
        standings = student.leaderboard(home)
    place = next((n for n, row in enumerate(standings, 1) if row.is_me), len(standings))
    if as_json:
        credit = {"units": units, "images": images, "seconds": seconds, "place": place, "students": len(standings)}
        print_json({**credit, "machines": machines})
        return
    say(
        f"{counted(images, 'image')} in {counted(units, 'unit')}, {spoken(seconds)} of computing: place {place} of {len(standings)}."
    )
    table = Listing("machine", "state", "units", "images", "img/s", "late", "refused")
    for m in machines:
        shown = (f"{m.units:,}", f"{m.images:,}", f"{m.images_per_second or 0:,.0f}", f"{m.late:,}", f"{m.refused:,}")
        table.add(m.machine, presence_cell(Presence.of(m.seconds_silent)), *shown)
    if machines:
        show(table)
    for m in machines:
        if m.message:
            say(f"{escape(m.machine)}, last message: {escape(m.message)}")


@commands.command("events")
def show_events(
    name: EveryTraining = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=5_000, help="Number of events to show, the newest.")
    ] = 30,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and show new events until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each event.")] = False,
) -> None:
    """Show unusual events: lost machines, units taken over, late answers, changes of the plan."""
    from deployments.local.database import database_url
    from gan_core.store.coordinator import events, trainings
    from gan_core.store.engine import Link

    with database_url(live=True) as url, Link(url) as link:
        if name:
            link.call(lambda c: trainings.get(c, name))  # a name that doesn't exist gets a sentence
        found = link.call(lambda c: events.latest(c, name, limit))
        if as_json:
            _print_lines(found)
        elif found:
            table = Listing("when", "training", "it.", "what", "in words", folds=["when", "in words"])
            for event in found:
                table.add(*_cells(event))
            show(table)
        else:
            console.print("Nothing beyond the ordinary has happened yet.")
        while follow:
            time.sleep(1)
            last = found[-1].id if found else 0
            new = link.call(lambda c, i=last: events.latest(c, name, after=i))
            if as_json:
                _print_lines(new)
            for event in () if as_json else new:
                console.print(" · ".join(_cells(event)), soft_wrap=True, markup=False)
            found = new or found


@contextmanager
def present(url: str) -> Generator[Connection]:
    """A connection; a database that is away is explained to whoever wanted to look."""
    from gan_core.store.engine import connect

    try:
        with connect(url) as connection:
            yield connection
    except StoreUnreachable as exc:
        raise StoreUnreachable(
            f"{exc} Workers and coordinators wait for it and go on by themselves; nothing is lost. "
            "Next: start it again (its log says why it ended), or wait if it is restarting."
        ) from exc


def _has_joined() -> bool:
    from gan_core.settings import settings

    return (settings().home / "student" / "invite").exists() and not settings().database_url


def _own_url() -> str:
    """The class as this machine's student: by its invite, or by the settings that `join --no-start` left."""
    from deployments.student.doctor import Doctor
    from deployments.student.join import Membership
    from gan_core.settings import settings

    if settings().database_url:
        return settings().database_url
    mine = Membership(settings().home)
    return Doctor(mine.invite(), mine.pem).home


def _print_lines(found: list[events.Event]) -> None:
    for event in found:
        print_json(event, lines=True)


def _cells(event: events.Event) -> tuple[str, ...]:
    when = event.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return when, event.training, f"{event.iteration:,}", event.kind, event.text
