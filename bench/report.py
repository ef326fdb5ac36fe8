"""What the sections found: tables on the screen, figures for programs, a page for people."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from gan_core.files import write_whole

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
HEADING = "### "  # of each section's table on the page


@dataclass(frozen=True, slots=True)
class Judgement:
    """A target, and whether this run met it."""

    target: str
    met: bool


def at_least(value: float, limit: float, unit: str = "×") -> Judgement:
    return Judgement(f"≥ {limit:,g} {unit}", value >= limit)


def at_most(value: float, limit: float, unit: str = "×") -> Judgement:
    return Judgement(f"≤ {limit:,g} {unit}", value <= limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that was measured."""

    label: str
    cells: tuple[str, ...]  # one for each of the section's columns
    figures: Mapping[str, float]  # the same as numbers
    ratio: float | None = None  # against the section's baseline; None where there is nothing to compare
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table."""

    name: str
    title: str
    columns: tuple[str, ...]
    ratio: str  # what the ratio compares
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    pictures: tuple[Path, ...] = field(default=())

    @property
    def header(self) -> tuple[str, ...]:
        return ("", *self.columns, f"{self.ratio} ratio", "target", "met")

    def lines(self) -> list[tuple[str, ...]]:
        """The rows as text, cell by cell."""
        lines = []
        for row in self.rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f} ×"
            judged = (row.judgement.target, "yes" if row.judgement.met else "NO") if row.judgement else ("", "")
            lines.append((row.label, *row.cells, ratio, *judged))
        return lines


def machine() -> str:
    """What this machine is, in words that name nobody."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__.partition('+')[0]}"
    )


def print_section(section: Section, console: Console) -> None:
    table = Table(title=f"[bold]{section.name}[/]: {section.title}", title_justify="left")
    for number, name in enumerate(section.header):
        table.add_column(name, justify="left" if number == 0 else "right")
    for line in section.lines():
        colour = {"yes": "[green]", "NO": "[bold red]"}.get(line[-1], "")
        table.add_row(*line[:-1], f"{colour}{line[-1]}")
    console.print(table)
    for note in section.notes:
        console.print(f"  {note}", style="dim", highlight=False)
    console.print()


def print_summary(sections: Sequence[Section], console: Console) -> None:
    judged = [(s.name, row) for s in sections for row in s.rows if row.judgement]
    missed = [
        f"{name}: {row.label} ({row.judgement.target})"
        for name, row in judged
        if row.judgement and not row.judgement.met
    ]
    console.print(f"{len(judged) - len(missed)} of {len(judged)} targets met on {machine()}.", highlight=False)
    for line in missed:
        console.print(f"  not met: {line}", style="red", highlight=False)


def write_json(path: Path, sections: Sequence[Section], where: str = "") -> None:
    """Every figure of these sections, as numbers.

    Args:
        where: what was measured; `machine()`, if nothing is said.
    """
    content = {
        "machine": where or machine(),
        "sections": {
            s.name: {"title": s.title, "ratio": s.ratio, "rows": [_plain(row) for row in s.rows], "notes": s.notes}
            for s in sections
        },
    }
    write_whole(path, f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())


def _plain(row: Row) -> dict[str, object]:
    return {
        "label": row.label,
        "cells": row.cells,
        "figures": dict(row.figures),
        "ratio": row.ratio,
        "judgement": asdict(row.judgement) if row.judgement else None,
    }


def require_markers(path: Path) -> None:
    """Raises ValueError unless the page says where figures belong: better now than after ten minutes."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{path} needs the lines {BEGIN} and {END}, once each and in this order: figures go between.")


def write_markdown(path: Path, sections: Sequence[Section], order: Sequence[str]) -> None:
    """Put the tables between the page's two marker comments; the page's other tables, and the rest of it, stay as they are.

    Args:
        order: names of all sections, as they shall follow each other.
    """
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    figures, _, after = rest.partition(END)
    tables = {table.partition(":")[0]: table.strip() for table in figures.split(HEADING)[1:]}
    tables |= {section.name: _markdown(section, path.parent) for section in sections}
    page = "\n\n".join(f"{HEADING}{tables[name]}" for name in order if name in tables)
    path.write_text(f"{before}{BEGIN}\n\n{page}\n\n{END}{after}", encoding="utf-8")


def _markdown(section: Section, folder: Path) -> str:
    lines = [section.header, ("---", *("---:" for _ in section.header[1:])), *section.lines()]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    pictures = [
        f"![{section.title}]({Path(os.path.relpath(picture, folder)).as_posix()})" for picture in section.pictures
    ]
    notes = "\n".join(f"- {note}" for note in section.notes)
    measured = f"Measured on {date.today():%d %B %Y}: {machine()}."
    return "\n\n".join(filter(None, (f"{section.name}: {section.title}", measured, table, *pictures, notes)))
