"""A class list as the gradebook exports it, and a login for everybody in it."""

import csv
import io
import re
import unicodedata
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from gan_core.errors import RosterError

LOGIN = re.compile(r"[a-z][a-z0-9_]{0,30}")
TAKEN = re.compile(r"instructor|postgres|prefect|public|none|pg_.*|classgan.*")  # names that mean something else


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


@dataclass(frozen=True, slots=True)
class Entry:
    """One student of a roster."""

    login: str
    name: str
    email: str
    identity: Mapping[str, str]  # columns of the gradebook, as they were
    key: str  # the same for the same person, whenever the roster is read


def read(path: Path, taken: Mapping[str, str]) -> list[Entry]:
    """Everybody in this file, in its order, each with a login of their own.

    Args:
        taken: keys of the students that the class has already, by login: the same person keeps the login.

    Raises:
        RosterError: it is no roster that we know; says which columns are expected.
    """
    reader = csv.DictReader(io.StringIO(text := _text(path), newline=""), delimiter=_delimiter(text))
    rows = [(reader.line_num, row) for row in reader]
    columns = {column.strip() for column in (rows[0][1] if rows else {}) if column}
    layout = next((layout for layout in LAYOUTS if layout.marks <= columns), None)
    if layout is None:
        known = "; ".join(f"{layout.name}: {', '.join(sorted(layout.marks))}" for layout in LAYOUTS)
        found = ", ".join(sorted(columns)) or "none"
        raise RosterError(
            f"{path} is no roster that is known here. Its columns: {found}. Expected, among others, {known}."
        )
    logins, entries = dict(taken), []
    lines = dict[str, int]()  # by key
    for line, row in rows:
        clean = {
            (column or "").strip(): (value or "").strip() for column, value in row.items() if isinstance(value, str)
        }
        name = " ".join(filter(None, (clean.get(column, "") for column in layout.person)))
        if not any(clean.values()) or (layout.name == "Canvas" and _is_no_person(clean, name)):
            continue
        key = f"{layout.name}:{_first(clean, layout.key) or name}"
        if key in lines:
            if layout.name == "plain":
                raise RosterError(
                    f"{path}, lines {lines[key]} and {line}: both have the login {key.removeprefix('plain:')!r}. Give each their own."
                )
            continue  # the same person in two groups
        lines[key] = line
        login = next((login for login, of in logins.items() if of == key), None)
        if login is None:
            login = _wished(_first(clean, layout.login), layout, logins, f"{path}, line {line}")
        logins[login] = key
        email = _first(clean, layout.email)
        identity = {column: clean[column] for column in layout.identity if column in clean}
        entries.append(Entry(login, name or login, email if "@" in email else "", identity, key))
    if not entries:
        raise RosterError(f"{path} names no student.")
    return entries


def checked_login(login: str) -> str:
    """The login, if it can be one.

    Raises:
        RosterError: says what a login looks like.
    """
    if not LOGIN.fullmatch(login) or TAKEN.fullmatch(login):
        raise RosterError(
            f"{login!r} can't be a login: up to 31 small letters, digits and underscores, a letter first. "
            "instructor, postgres, prefect, public, none and names that begin with pg_ or classgan are reserved."
        )
    return login


def _wished(text: str, layout: Layout, taken: Container[str], place: str) -> str:
    """A login that nobody has: this one as it stands in a plain roster, one like it in a gradebook's."""
    if layout.name != "plain":
        return _unique(_login_of(text), taken)
    try:
        login = checked_login(text)
    except RosterError as exc:
        raise RosterError(f"{place}: {exc}") from exc
    if login in taken:
        raise RosterError(f"{place}: somebody else in the class has the login {login!r}. Choose another.")
    return login


def _login_of(text: str) -> str:
    """A login that resembles an e-mail address, a user name or a person's name."""
    plain = unicodedata.normalize("NFKD", text.split("@")[0]).encode("ascii", "ignore").decode().lower()
    login = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:28]
    login = login if login[:1].isalpha() else f"s{login}"
    return f"s_{login}" if TAKEN.fullmatch(login) else login


def _unique(login: str, taken: Container[str]) -> str:
    candidates = (login, *(f"{login}{n}" for n in range(2, 1_000)))
    return next(candidate for candidate in candidates if candidate not in taken)


def _first(row: Mapping[str, str], columns: tuple[str, ...]) -> str:
    return next((row[column] for column in columns if row.get(column)), "")


def _is_no_person(row: Mapping[str, str], name: str) -> bool:
    """Canvas puts a line with the points that can be had, and one for its test student, among the people."""
    return name.lower() in ("points possible", "student, test") or not row.get("ID")


def _text(path: Path) -> str:
    """What a spreadsheet wrote: UTF-8, UTF-16 or the old Windows encoding."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    if b"\0" in content:  # a workbook, a zip, a picture
        raise RosterError(f"{path} is no text. In the spreadsheet, save it as CSV.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def _delimiter(text: str) -> str:
    head = text.split("\n", 1)[0]
    return max(",;\t", key=head.count)
