"""Work and marks as tables: one for people, and one for each gradebook. See docs/grades.md for what each one needs."""

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from psycopg import Connection

from gan_core.exports import spreadsheets
from gan_core.exports.rubric import Mark, Rubric, mark
from gan_core.exports.spreadsheets import Cell
from gan_core.files import write_private
from gan_core.store.viewers import work_done
from gan_core.store.viewers.work_done import Work

Row = tuple[Work, Mark]

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
# Canvas wants its columns in this order, Section last.
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Root Account", "Section")
MOODLE = (
    *("First name", "Last name", "Surname", "Username", "ID number"),
    *("Institution", "Department", "Email address"),
)
MOODLE_KEYS = ("Email address", "ID number", "Username")  # by which Moodle finds a person
NBGRADER = (
    *("id", "last_name", "first_name", "email", "lms_user_id"),  # what `nbgrader db student import` reads
    *("assignment", "score", "max_score"),  # as in the file that `nbgrader export` writes
)


def rows_of(connection: Connection, rubric: Rubric) -> list[Row]:
    """Everybody's work and mark, the most images first."""
    done = work_done.done(connection, rubric.period, rubric.time_zone, rubric.deadline)
    return [(one, mark(rubric, one)) for one in done]


def table(rows: Sequence[Row]) -> list[list[Cell]]:
    """The full table, with its header."""
    return [list(COLUMNS), *([value(*row) for value in COLUMNS.values()] for row in rows)]


def canvas(rows: Sequence[Row], rubric: Rubric) -> bytes:
    """Canvas's own columns, a line with the points that can be had, and the mark. No byte order mark."""
    known = [_columns(one) for one, _ in rows]
    columns = [c for c in CANVAS if c != "Root Account" or any(c in identity for identity in known)]
    points = ["    Points Possible", *[""] * (len(columns) - 1), _figure(rubric.points)]
    lines: list[list[Cell]] = [[*columns, rubric.title], points]
    for (one, its_mark), identity in zip(rows, known, strict=True):
        if "Student" not in identity:  # Canvas finds such a person by what the login there is called, or asks
            identity = {"Student": one.display_name, "SIS Login ID": _email(one) or one.login}
        lines.append([*(identity.get(c, "") for c in columns), _figure(its_mark.points)])
    return spreadsheets.csv_bytes(lines)


def moodle(rows: Sequence[Row], rubric: Rubric) -> bytes:
    """Moodle's own columns and the mark. Moodle strips blanks around a cell: a tab guards, and the person is found.

    Who has nothing by which Moodle could find them is left out, since one such line ends the whole import there.
    """
    known = [(_moodle_identity(one), its_mark) for one, its_mark in rows]
    present = [c for c in MOODLE if any(c in identity for identity, _ in known)] or ["Email address"]
    found = [row for row in known if any(row[0].get(key) for key in MOODLE_KEYS)]
    lines = [[*(identity.get(c, "") for c in present), _figure(m.points)] for identity, m in found]
    return spreadsheets.csv_bytes([[*present, rubric.title], *lines], guard="\t")


def unknown_to_moodle(rows: Sequence[Row]) -> list[str]:
    """Logins of those who are left out of Moodle's file."""
    return [one.login for one, _ in rows if not any(_moodle_identity(one).get(key) for key in MOODLE_KEYS)]


def nbgrader(rows: Sequence[Row], rubric: Rubric) -> bytes:
    """Everybody as nbgrader names them, and the mark. It reads the first line as it is: no byte order mark."""
    lines: list[list[Cell]] = [list(NBGRADER)]
    for one, its_mark in rows:
        identity = _columns(one)
        last = identity.get("Last name") or identity.get("Surname")
        first = identity.get("First name", "")
        if not last:
            last, _, first = (part.strip() for part in (identity.get("Student") or one.display_name).partition(","))
        person = [one.login, last, first, _email(one), identity.get("ID") or identity.get("ID number", "")]
        lines.append([*person, rubric.title, _figure(its_mark.points), _figure(rubric.points)])
    return spreadsheets.csv_bytes(lines)


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
        "canvas": ("canvas.csv", canvas),
        "moodle": ("moodle.csv", moodle),
        "nbgrader": ("nbgrader.csv", nbgrader),
    }
)


def write(path: Path, kind: str, rows: Sequence[Row], rubric: Rubric) -> None:
    """One of the FORMATS as a file, whole or not at all, for its owner only."""
    write_private(path, FORMATS[kind][1](rows, rubric))


def write_all(path: Path, rows: Sequence[Row], rubric: Rubric, kinds: Sequence[str] = tuple(FORMATS)) -> list[Path]:
    """The full table, if the path ends in .csv or .xlsx; else these FORMATS into that folder. Returns what was written."""
    single = path.suffix.lower().removeprefix(".")
    if single in ("csv", "xlsx"):
        write(path, single, rows, rubric)
        return [path]
    contents = {path / FORMATS[kind][0]: FORMATS[kind][1](rows, rubric) for kind in kinds}  # all, before one is written
    for file, content in contents.items():
        write_private(file, content)
    return list(contents)


def _columns(one: Work) -> dict[str, str]:
    return {str(name): str(value) for name, value in (one.roster.get("columns") or {}).items()}


def _moodle_identity(one: Work) -> dict[str, str]:
    identity: dict[str, Any] = {name: value for name, value in _columns(one).items() if name in MOODLE}
    return identity or {"First name": one.display_name, "Email address": _email(one)}


def _email(one: Work) -> str:
    return str(one.roster.get("email") or "")


def _figure(points: float) -> str:
    """A point, no separators, no needless zeros: what every gradebook reads as a number."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def _moment(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds") if at else ""
