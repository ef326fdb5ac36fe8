"""How each gradebook writes a class list: its columns, in whichever language, and which rows are students."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, str]  # column → cell, without blanks around them
ADDRESS = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
ROLES = re.compile(r"roles?|rol|rôles?|roll(en)?|ruol[io]|pap[eé](l|is)|рол[иь]|角色|役割|ロール", re.IGNORECASE)
MANY_ROLES = re.compile(r"[,;/]\s+|\n")  # between two of one person's


@dataclass(frozen=True, slots=True)
class Layout:
    """How one gradebook names its columns."""

    name: str
    marks: frozenset[str]  # columns by which it is known
    login: tuple[str, ...]  # the first of these that has something in it becomes the login
    person: tuple[str, ...]  # together, the name
    email: tuple[str, ...]
    identity: tuple[str, ...]  # echoed when grades go back
    key: tuple[str, ...]  # the first of these that has something in it tells whether it is the same person


LAYOUTS = (
    Layout(
        "Canvas",
        frozenset({"Student", "ID", "Section"}),
        login=("SIS Login ID", "SIS User ID", "Student"),
        person=("Student",),
        email=("SIS Login ID",),
        identity=("Student", "ID", "SIS User ID", "SIS Login ID", "Root Account", "Section"),
        key=("ID",),
    ),
    Layout(
        "Moodle",
        frozenset({"First name", "Email address"}),
        login=("Username", "Email address", "ID number"),
        person=("First name", "Last name", "Surname"),
        email=("Email address",),
        identity=(
            "First name",
            "Last name",
            "Surname",
            "Username",
            "ID number",
            "Institution",
            "Department",
            "Email address",
        ),
        key=("Email address", "ID number", "Username"),
    ),
    Layout(
        "plain",
        frozenset({"login"}),
        login=("login",),
        person=("name",),
        email=("email",),
        identity=("login", "name", "email"),
        key=("login",),
    ),
)


def layout_of(rows: Sequence[Row]) -> Layout | None:
    """Whose list this is; None if nobody's whom we know."""
    columns = set(rows[0]) if rows else set()
    return next((layout for layout in LAYOUTS if layout.marks <= columns), None)


def translated(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows with the columns that LAYOUTS know, where a gradebook has others for the same.

    Canvas may give first and last name a column each. Moodle translates its columns: the one that holds nothing but
    addresses is the address, up to two before it are the name.
    """
    if not rows or layout_of(rows):
        return rows
    columns = list(rows[0])
    if {"LastName", "FirstName", "ID"} <= set(columns):
        return [
            {"Section": "", **row, "Student": ", ".join(filter(None, (row.get("LastName"), row.get("FirstName"))))}
            for row in rows
        ]
    addresses = [column for column in columns if _all(rows, column, ADDRESS)]
    if len(addresses) != 1:
        return rows
    names = columns[: columns.index(addresses[0])][:2]
    if not names or not all(_all(rows, column, re.compile(r"[^\d@]+")) for column in names):
        return rows
    english = dict(zip(names, ("First name", "Last name"), strict=False)) | {addresses[0]: "Email address"}
    english |= {column: "Roles" for column in columns if ROLES.fullmatch(column)}
    return [{english.get(column, column): cell for column, cell in row.items()} for row in rows]


def no_students(rows: Sequence[Row]) -> dict[int, str]:
    """The role of those whom Moodle's list of participants has in other roles than students, by place in `rows`.

    Roles are words of any language: a student's has `student` in it, or is the one that most people have.
    """
    roles = {n: set(MANY_ROLES.split(row["Roles"])) for n, row in enumerate(rows) if row.get("Roles")}
    times = Counter(role for several in roles.values() for role in several)
    students = {role for role in times if "student" in role.casefold()} or {role for role, _ in times.most_common(1)}
    return {n: ", ".join(sorted(several)) for n, several in roles.items() if not several & students}


def is_no_person(layout: Layout, row: Row, name: str) -> bool:
    """Canvas puts a line with the points that can be had, and one for its test student, among the people."""
    return not any(row.values()) or (
        layout.name == "Canvas" and (name.lower() in ("points possible", "student, test") or not row.get("ID"))
    )


def _all(rows: Sequence[Row], column: str, form: re.Pattern[str]) -> bool:
    """Whether everything in this column has this form, and there is something in it."""
    cells = [row[column] for row in rows if row.get(column)]
    return bool(cells) and all(form.fullmatch(cell) for cell in cells)
