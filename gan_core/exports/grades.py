"""Work and marks as tables: one for people, and one for each gradebook."""

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from psycopg import Connection

from gan_core.errors import RubricError
from gan_core.exports import gradebooks, spreadsheets
from gan_core.exports.gradebooks import Row
from gan_core.exports.rubric import Mark, Rubric, mark
from gan_core.exports.spreadsheets import Cell
from gan_core.files import write_private
from gan_core.store.viewers import work_done
from gan_core.store.viewers.work_done import Work

COLUMNS: Mapping[str, Callable[[Work, Mark], Cell]] = MappingProxyType(
    {
        "rank": lambda w, m: w.rank,
        "login": lambda w, m: w.login,
        "name": lambda w, m: w.display_name,
        "mark": lambda w, m: m.points,
        "units": lambda w, m: w.units,
        "images": lambda w, m: w.images,
        "seconds": lambda w, m: round(w.seconds, 1),
        "hours": lambda w, m: round(w.hours, 3),
        "late": lambda w, m: w.late,
        "refused": lambda w, m: w.rejected,
        "rejected_share": lambda w, m: round(w.rejected_share, 4),
        "checked": lambda w, m: w.checked,
        "invalid": lambda w, m: w.invalid,
        "first_contribution": lambda w, m: _moment(w.first_at),
        "last_contribution": lambda w, m: _moment(w.last_at),
        "active_days": lambda w, m: w.active_days,
        "consistency": lambda w, m: round(w.consistency, 4),
        "devices": lambda w, m: w.devices,
        "suspended": lambda w, m: w.suspended,
    }
)


def rows_of(connection: Connection, rubric: Rubric) -> list[Row]:
    """Everybody's work and mark, the most images first."""
    done = work_done.done(connection, rubric.period, rubric.time_zone, rubric.deadline)
    return [(one, mark(rubric, one)) for one in done]


def table(rows: Sequence[Row]) -> list[list[Cell]]:
    """The full table, with its header."""
    return [list(COLUMNS), *([value(*row) for value in COLUMNS.values()] for row in rows)]


def xlsx(rows: Sequence[Row]) -> bytes:
    """The full table as a workbook; text is kept as text, also what looks like a formula."""
    import pandas as pd
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    header, *lines = table(rows)
    clean = [[ILLEGAL_CHARACTERS_RE.sub("", c) if isinstance(c, str) else c for c in line] for line in lines]
    content = io.BytesIO()
    with pd.ExcelWriter(content, engine="openpyxl") as book:
        pd.DataFrame(clean, columns=header).to_excel(book, sheet_name="grades", index=False, freeze_panes=(1, 3))
        for cells in book.sheets["grades"].iter_rows(min_row=2):
            for cell in cells:
                if isinstance(cell.value, str):
                    cell.data_type, cell.quotePrefix = "s", True
    return content.getvalue()


FORMATS: Mapping[str, tuple[str, Callable[[Sequence[Row], Rubric], bytes]]] = MappingProxyType(
    {
        "csv": ("grades.csv", lambda rows, rubric: spreadsheets.csv_bytes(table(rows), mark=True)),
        "xlsx": ("grades.xlsx", lambda rows, rubric: xlsx(rows)),
        "canvas": ("canvas.csv", gradebooks.canvas),
        "moodle": ("moodle.csv", gradebooks.moodle),
        "nbgrader": ("nbgrader.csv", gradebooks.nbgrader),
    }
)

TABLES = ("csv", "xlsx")  # what can be written as one file


def write(path: Path, kind: str, rows: Sequence[Row], rubric: Rubric) -> None:
    """One of the FORMATS as a file, whole or not at all, for its owner only."""
    write_private(path, FORMATS[kind][1](rows, rubric))


def write_all(
    path: Path, rows: Sequence[Row], rubric: Rubric, kinds: Sequence[str] = tuple(FORMATS)
) -> dict[str, Path]:
    """The full table, if the path ends in .csv or .xlsx; else these FORMATS into that folder. Returns what was written, by format.

    Raises:
        RubricError: the path is neither.
    """
    single = path.suffix.lower().removeprefix(".")
    if single in TABLES:
        write(path, single, rows, rubric)
        return {single: path}
    if single and not path.is_dir():
        raise RubricError(
            f"{path} ends in .{single}: the full table is written as .csv or .xlsx, and gradebook files into a folder. Name "
            "one of these."
        )
    files = {kind: path / FORMATS[kind][0] for kind in kinds}
    contents = {kind: FORMATS[kind][1](rows, rubric) for kind in kinds}  # all, before one is written
    for kind, file in files.items():
        write_private(file, contents[kind])
    return files


def _moment(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds") if at else ""
