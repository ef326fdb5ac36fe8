"""What commands print: tables, JSON, a progress bar."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from deployments.cli.tables import Listing
from gan_core.units import Presence

if TYPE_CHECKING:
    from gan_core.plan import Plan
    from gan_core.store.viewers import ledger

console = Console()
COLOURS = {Presence.ONLINE: "green", Presence.IDLE: "yellow", Presence.OFFLINE: "dim"}


def live_table(*columns: str, words: Iterable[str] = ()) -> Table:
    """A live table, one line a row: its columns keep their width in a narrow terminal, only those of `words` give way."""
    table = Table()
    for name in columns:
        table.add_column(name, no_wrap=name not in words)
    return table


def word(text: str, style: str = "") -> Text:
    """Somebody's words on one line: no markup, and cut where there is no room."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def show(listing: Listing) -> None:
    """On a terminal as a table that fits; into a pipe as plain lines. Nothing is cut."""
    if console.is_terminal:
        console.print(listing, crop=False)
        return
    for line in listing.lines():
        typer.echo(line)


def keep_private() -> None:
    """A secret is about to be printed: if the output goes into a file, only its owner may read that from now on."""
    with suppress(OSError):  # no such output
        if sys.platform != "win32" and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
            os.fchmod(sys.stdout.fileno(), 0o600)


def say(text: str, style: str | None = None) -> None:
    """Sentences, with markup: on a terminal folded between two words, into a pipe on one line."""
    fits = max(map(cell_len, text.split()), default=0) <= console.width  # no word is broken: a path is to be copied
    console.print(text, style=style, highlight=False, soft_wrap=not (console.is_terminal and fits))


def print_json(value: Any, *, lines: bool = False) -> None:
    """Dataclasses and what is made of them; on one line if there are to be several."""
    typer.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=None if lines else 2))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def presence_cell(presence: Presence) -> Text:
    return Text(presence, COLOURS[presence])


def worker_table(workers: list[ledger.WorkerRow]) -> Listing:
    """Who computes, by accepted images."""
    columns = ("worker", "student", "state", "units", "images", "img/s", "device", "last message")
    table = Listing(*columns, folds=("student", "last message"), spare=("device", "units"))
    for w in workers:
        table.add(
            w.name,
            w.student,
            presence_cell(Presence.of(w.seconds_silent)),
            f"{w.units:,}",
            f"{w.images:,}",
            f"{w.images_per_second or 0:,.0f}",
            w.device,
            w.message,
        )
    return table


def open_with_bar(plan: Plan, cache: Path, began_with: str = ""):
    """The plan's images, for a training that began with this fingerprint; a bar shows the first use, which resizes them all.

    Data that isn't there shows none.
    """
    from gan_core.data.images import images_of
    from gan_core.settings import settings

    columns = TextColumn("preparing images"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=None)

    def show(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        return images_of(plan, cache, settings().data, began_with, progress=show)
    finally:
        if bar.live.is_started:
            bar.stop()
