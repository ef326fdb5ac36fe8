"""`classgan status`, `leaderboard`, `my`, `events`: what there is to see, for people and, as JSON, for programs."""

import json
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

import typer
from psycopg import Connection
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from deployments.commands.reports import database_url
from gan_core.errors import StoreUnreachable
from gan_core.pace import Presence, spoken
from gan_core.settings import settings
from gan_core.situation import sentence
from gan_core.store import evaluations, events, ledger, student, trainings, watching
from gan_core.store.engine import Link, connect, translated

console = Console()

COLOURS = {Presence.ONLINE: "green", Presence.IDLE: "yellow", Presence.OFFLINE: "dim"}


# Printing


def figures(*columns: str, words: Iterable[str] = ()) -> Table:
    """A table whose columns keep their width in a narrow terminal; only those of `words` give way."""
    table = Table()
    for name in columns:
        table.add_column(name, no_wrap=name not in words)
    return table


def word(text: str, style: str = "") -> Text:
    """Somebody's words on one line: no markup, and cut where there is no room."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def show(table: Table) -> None:
    """On a terminal as a table; into a pipe as plain lines with nothing cut."""
    if console.is_terminal:
        console.print(table)
    else:
        table.box = None
        Console(width=10_000).print(table)


def print_json(value: Any, *, lines: bool = False) -> None:
    """Dataclasses and what is made of them; on one line if there are to be several."""
    typer.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=None if lines else 2))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def presence_cell(presence: Presence) -> str:
    return f"[{COLOURS[presence]}]{presence}[/]"


# Commands


def print_status(name: str, as_json: bool) -> None:
    """Trainings, each with a sentence that says what it is doing or waits for, and workers.

    Raises:
        StoreUnreachable: the database is away; says what that means and what to do.
    """
    with database_url() as url, present(url) as connection:
        rows = [trainings.get(connection, name)] if name else trainings.every(connection)
        views = [view for row in rows if (view := ledger.overview(connection, row.name))]
        workers = ledger.workers(connection, name)
        measured = {row.name: evaluations.of_training(connection, row.id) for row in rows}
    if as_json:
        told = [{**asdict(view), "situation": sentence(view), "quality": measured[view.name][-1:]} for view in views]
        print_json({"trainings": told, "workers": workers})
        return
    if not rows:
        console.print("No training yet. Start one in the Prefect UI (deployment `train`), or with `classgan demo`.")
        return
    table = figures("training", "state", "it.", "images", "img/s", "G loss", "D loss", words=["training"])
    for view in views:
        losses = (f"{view.last.g_loss:.2f}", f"{view.last.d_loss:.2f}") if view.last else ("", "")
        speed = f"{view.images_per_second:,.0f}"
        table.add_row(view.name, view.state, f"{view.iteration:,}", f"{view.images:,}", speed, *losses)
    show(table)
    for view in views:
        console.print(f"[bold]{view.name}[/bold] {escape(sentence(view))}", soft_wrap=True)
        if history := measured[view.name]:
            console.print(f"  Quality {history[-1].sentence()}.", soft_wrap=True, highlight=False)
            if warning := evaluations.collapse(history):
                console.print(f"  [yellow]{warning}[/yellow]", soft_wrap=True, highlight=False)
    show(worker_table(workers))


@contextmanager
def present(url: str) -> Generator[Connection]:
    """A connection; a database that is away is explained to whoever wanted to look."""
    try:
        with connect(url) as connection:
            yield connection
    except StoreUnreachable as exc:
        raise StoreUnreachable(
            f"{exc} Workers and coordinators wait for it and go on by themselves; nothing is lost. "
            "Next: start it again (its log says why it ended), or wait if it is restarting."
        ) from exc


def worker_table(workers: list[ledger.WorkerRow]) -> Table:
    """Who computes, by accepted images."""
    words = ("worker", "student", "device", "last message")
    table = figures("worker", "student", "state", "units", "images", "img/s", "device", "last message", words=words)
    for w in workers:
        table.add_row(
            word(w.name),
            word(w.student),
            presence_cell(Presence.of(w.seconds_silent)),
            f"{w.units:,}",
            f"{w.images:,}",
            f"{w.images_per_second or 0:,.0f}",
            word(w.device),
            word(w.message),
        )
    return table


def print_leaderboard(as_json: bool) -> None:
    """Everybody's credit; on a machine that has joined, over its student's own login."""
    if _has_joined():
        with connect(_own_url()) as connection:
            standings = student.leaderboard(connection)
    else:
        with database_url() as url, watching.viewer(url) as connection:
            standings = watching.leaderboard(connection)
    if as_json:
        print_json(standings)
        return
    if not standings:
        console.print("No students yet. Let them in: classgan students add NAME")
        return
    table = figures("", "name", "state", "units", "images", "machines", "img/s", words=["name"])
    for place, row in enumerate(standings, 1):
        name = word(f"{row.display_name} (you)", "bold") if row.is_me else word(row.display_name)
        speed = f"{row.images_per_second:,.0f}"
        counted = (f"{row.units:,}", f"{row.images:,}", f"{row.machines:,}", speed)
        table.add_row(str(place), name, presence_cell(row.presence), *counted)
    show(table)


def print_mine(as_json: bool) -> None:
    """A student's own credit and machines.

    Raises:
        InviteError: this machine never joined.
        StoreError: the login is suspended, and why.
    """
    url = _own_url()
    with connect(url) as connection, translated(url):
        units, images, seconds = student.my_credit(connection)
        machines = student.my_machines(connection)
        standings = student.leaderboard(connection)
    place = next((n for n, row in enumerate(standings, 1) if row.is_me), len(standings))
    if as_json:
        credit = {"units": units, "images": images, "seconds": seconds, "place": place, "students": len(standings)}
        print_json({**credit, "machines": machines})
        return
    console.print(
        f"{images:,} images in {units:,} units, {spoken(seconds)} of computing: place {place} of {len(standings)}.",
        soft_wrap=True,
    )
    table = figures("machine", "state", "units", "images", "img/s", "late", "refused", words=["machine"])
    for m in machines:
        counted = (f"{m.units:,}", f"{m.images:,}", f"{m.images_per_second or 0:,.0f}", f"{m.late:,}", f"{m.refused:,}")
        table.add_row(word(m.machine), presence_cell(Presence.of(m.seconds_silent)), *counted)
    if machines:
        show(table)
    for m in machines:
        if m.message:
            console.print(f"{escape(m.machine)}, last message: {escape(m.message)}", soft_wrap=True)


def _has_joined() -> bool:
    return (settings().home / "student" / "invite").exists() and not settings().database_url


def _own_url() -> str:
    """The database as this machine's student: by its invite, or by the settings that `join --no-start` left."""
    from deployments.doctor import Doctor
    from deployments.joining import Membership

    if settings().database_url:
        return settings().database_url
    mine = Membership(settings().home)
    return Doctor(mine.invite(), mine.pem).database


def print_events(name: str, limit: int, follow: bool, as_json: bool) -> None:
    """What happened beyond the ordinary, the newest last."""
    with database_url() as url, Link(url) as link:
        if name:
            link.call(lambda c: trainings.get(c, name))  # a name that doesn't exist gets a sentence
        found = link.call(lambda c: events.latest(c, name, limit))
        if as_json:
            _print_lines(found)
        elif found:
            table = figures("when", "training", "it.", "what", "in words", words=["training", "in words"])
            for event in found:
                table.add_row(*_cells(event))
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
                console.print(" · ".join(_cells(event)), soft_wrap=True)
            found = new or found


def _print_lines(found: list[events.Event]) -> None:
    for event in found:
        print_json(event, lines=True)


def _cells(event: events.Event) -> tuple[str, ...]:
    when = event.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return when, event.training, f"{event.iteration:,}", event.kind, escape(event.text)
