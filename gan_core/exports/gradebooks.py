"""Marks as Canvas, Moodle and nbgrader read them: who is in each file, by what they are found, and what is to be said about it.

See docs/grades.md for what each one needs.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from gan_core.exports import spreadsheets
from gan_core.exports.rubric import Mark, Rubric
from gan_core.exports.spreadsheets import Cell
from gan_core.store.viewers.work_done import Work

Row = tuple[Work, Mark]

# Canvas wants its columns in this order, Section last.
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Root Account", "Section")
# A column of marks whose name contains one of these is ignored there, and one that is called like its own is misread.
CANVAS_IGNORES = re.compile(r"final|current (score|points|grade)|override (score|grade|status)", re.IGNORECASE)
CANVAS_OWN = frozenset({*CANVAS, "LastName", "FirstName", "Integration ID"})
MOODLE = (
    *("First name", "Last name", "Surname", "Username", "ID number"),
    *("Institution", "Department", "Email address"),
)
MOODLE_KEYS = ("Email address", "ID number", "Username")  # by which Moodle finds a person
MOODLE_MOST = 100  # points, unless its administrator allows more
NBGRADER = (
    *("id", "last_name", "first_name", "email", "lms_user_id"),  # what `nbgrader db student import` reads
    *("assignment", "score", "max_score"),  # as in the file that `nbgrader export` writes
)


@dataclass(frozen=True, slots=True)
class Listed:
    """Whom a gradebook can find, and whom it can't."""

    found: list[Row] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # logins: there is nothing to find them by
    twice: list[str] = field(default_factory=list)  # logins: what they would be found by is another's, too


def canvas(rows: Sequence[Row], rubric: Rubric) -> bytes:
    """Canvas's own columns, a line with the points that can be had, and the mark. No byte order mark."""
    found = _in_canvas(rows).found
    known = [_columns(one) for one, _ in found]
    columns = [c for c in CANVAS if c != "Root Account" or any(c in identity for identity in known)]
    points = ["    Points Possible", *[""] * (len(columns) - 1), _figure(rubric.points)]
    lines: list[list[Cell]] = [[*columns, rubric.title], points]
    for (one, its_mark), identity in zip(found, known, strict=True):
        if not identity.get("ID"):  # Canvas finds such a person by what the login there is called, or asks
            identity = {"Student": one.display_name, "SIS Login ID": _email(one)}
        lines.append([*(identity.get(c, "") for c in columns), _figure(its_mark.points)])
    return spreadsheets.csv_bytes(lines)


def moodle(rows: Sequence[Row], rubric: Rubric) -> bytes:
    """Names, the one column by which Moodle is to find people, and the mark.

    Every line has that column: Moodle takes a blank one for the person of the line above. The other columns that it could
    find people by aren't there, so that none of them is chosen. Moodle strips blanks around a cell: a tab guards, and the
    person is found.
    """
    key, listed = _in_moodle(rows)
    known = [(_moodle_identity(one), its_mark) for one, its_mark in listed.found]
    columns = [c for c in MOODLE if c not in MOODLE_KEYS and any(c in identity for identity, _ in known)] + [key]
    lines = [[*(identity.get(c, "") for c in columns), _figure(m.points)] for identity, m in known]
    return spreadsheets.csv_bytes([[*columns, rubric.title], *lines], guard="\t")


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


def remarks(kinds: Collection[str], rows: Sequence[Row], rubric: Rubric) -> list[str]:
    """What to know of these formats' files, in sentences: by what people are found, who is left out, what won't be taken."""
    said = []
    if "canvas" in kinds:
        said += _left_out(
            "Canvas", "number (ID) there, or an address with a name that nobody else has", _in_canvas(rows)
        )
        if CANVAS_IGNORES.search(rubric.title):
            said.append(
                f"Canvas ignores a column that is called {rubric.title!r}: the words Final, Current and Override mean its own "
                "totals. Give the rubric another title."
            )
        elif rubric.title in CANVAS_OWN:
            said.append(
                f"Canvas misreads a column that is called {rubric.title!r}, like one of its own. Give the rubric another title."
            )
    if "moodle" in kinds:
        key, listed = _in_moodle(rows)
        if listed.found:
            said.append(f"In Moodle, choose {key!r} in both Map from and Map to: every line of the file has it.")
        said += _left_out("Moodle", key, listed)
        if rubric.points > MOODLE_MOST:
            said.append(
                f"The rubric gives up to {rubric.points:g} points, and Moodle refuses a file with more than {MOODLE_MOST}, unless "
                f"its administrator allows more (gradepointmax). Write points: {MOODLE_MOST} in the rubric."
            )
    return said


def _left_out(gradebook: str, key: str, listed: Listed) -> list[str]:
    said = []
    if listed.unknown:
        said.append(
            f"Not in {gradebook}'s file, since no roster gave their {key}: {', '.join(listed.unknown)}. Add them with a roster "
            "that has it, or enter their marks by hand."
        )
    if listed.twice:
        said.append(
            f"Not in {gradebook}'s file, since another login has the same {key}: {', '.join(listed.twice)}. If these are one "
            "person, enter that mark by hand."
        )
    return said


def _in_canvas(rows: Sequence[Row]) -> Listed:
    """By number, or by an address that nobody else has. Canvas goes by the name next: that must be nobody else's either."""
    names = Counter(_name(one) for one, _ in rows)
    return _listed(
        rows,
        lambda one: _email(one) if names[_name(one)] == 1 else "",
        is_sure=lambda one: bool(_columns(one).get("ID")),
    )


def _in_moodle(rows: Sequence[Row]) -> tuple[str, Listed]:
    """The column by which most people can be found, and who these are."""
    by_key = {key: _listed(rows, lambda one, key=key: _moodle_key(one, key)) for key in MOODLE_KEYS}
    best = max(MOODLE_KEYS, key=lambda key: len(by_key[key].found))
    return best, by_key[best]


def _listed(
    rows: Sequence[Row], key: Callable[[Work], str], is_sure: Callable[[Work], bool] = lambda one: False
) -> Listed:
    """Who has a key that nobody else has, or is sure to be found without it."""
    listed, times = Listed(), Counter(key(one).casefold() for one, _ in rows)
    for row in rows:
        value = key(row[0]).casefold()
        if is_sure(row[0]) or (value and times[value] == 1):
            listed.found.append(row)
        else:
            (listed.twice if value else listed.unknown).append(row[0].login)
    return listed


def _columns(one: Work) -> dict[str, str]:
    return {str(name): str(value) for name, value in (one.roster.get("columns") or {}).items()}


def _moodle_identity(one: Work) -> dict[str, str]:
    identity = {name: value for name, value in _columns(one).items() if name in MOODLE}
    identity.setdefault("First name", one.display_name)
    identity["Email address"] = identity.get("Email address") or _email(one)
    return identity


def _moodle_key(one: Work, column: str) -> str:
    key = _moodle_identity(one).get(column, "").strip()
    return "" if key == "0" else key  # which PHP takes for nothing at all


def _name(one: Work) -> tuple[str, ...]:
    """Its words, in whichever order they are written."""
    return tuple(sorted(re.findall(r"\w+", one.display_name.casefold())))


def _email(one: Work) -> str:
    return str(one.roster.get("email") or "")


def _figure(points: float) -> str:
    """A point, no separators, no needless zeros: what every gradebook reads as a number."""
    return f"{points:.2f}".rstrip("0").rstrip(".")
