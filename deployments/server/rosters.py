"""A class list as the gradebook exports it, and a login for everybody in it."""

import csv
import io
import re
import unicodedata
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.server.roster_layouts import LAYOUTS, Layout, Row, is_no_person, layout_of, no_students, translated
from gan_core.errors import RosterError
from gan_core.store.logins import CLUSTER_LOGIN, Person

LOGIN = re.compile(r"[a-z][a-z0-9_]{0,30}")
TAKEN = re.compile(r"instructor|postgres|prefect|public|none|pg_.*|classgan.*")  # names that mean something else


@dataclass(frozen=True, slots=True)
class Entry:
    """One student of a roster."""

    login: str
    name: str
    email: str
    identity: Mapping[str, str]  # columns of the gradebook, as they were
    key: str  # the same for the same person, whenever a list of this kind is read


@dataclass(frozen=True, slots=True)
class Roster:
    """What a class list says."""

    entries: tuple[Entry, ...]  # in its order, each with a login of their own
    remarks: tuple[str, ...]  # what the instructor should look at, in sentences


def read(path: Path, known: Mapping[str, Person]) -> Roster:
    """Everybody in this file. Who is in the class already keeps the login: known by the gradebook's key, or by the address.

    Args:
        known: the students that the class has already, by login.

    Raises:
        RosterError: it is no roster that we know, or leaves open who somebody is; says which line, and what to do.
    """
    lines, given = _table(path)
    rows = translated(given)
    if (layout := layout_of(rows)) is None:
        found = ", ".join(sorted(given[0] if given else [])) or "none"
        expected = "; ".join(f"{layout.name}: {', '.join(sorted(layout.marks))}" for layout in LAYOUTS)
        raise RosterError(
            f"{path} is no roster that is known here. Its columns: {found}. Expected, among others, {expected}; or names, and "
            "a column of addresses."
        )
    others, left_out = no_students(rows), []
    people, entries, remarks = dict(known), [], []
    seen = dict[str, int]()  # line, by key and by login
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        name = " ".join(filter(None, (row.get(column, "") for column in layout.person)))
        if is_no_person(layout, row, name):
            continue
        if number in others:
            left_out.append(f"{name} ({others[number]})")
            continue
        key, email = f"{layout.name}:{_first(row, layout.key) or name}", _first(row, layout.email)
        email = email if "@" in email else ""
        if (first := seen.setdefault(key.casefold(), line)) != line:
            if layout.name == "plain":
                raise RosterError(
                    f"{path}, lines {first} and {line}: both have the login {row['login']!r}. Give each their own."
                )
            continue  # the same person in two groups
        place = f"{path}, line {line}"
        login = _same(people, key, email, place)
        if login is None:
            login = _wished(_first(row, layout.login), layout, {*people, CLUSTER_LOGIN}, place)
            remarks += _namesakes(known, login, name, layout)
        elif layout.name == "plain" and login != row["login"]:
            raise RosterError(
                f"{place}: {login!r} in the class has the same address, {email}. If this is the same person, write the login "
                f"{login}; if not, correct the address."
            )
        if (first := seen.setdefault(f"login {login}", line)) != line:
            raise RosterError(
                f"{path}, lines {first} and {line}: two people with the address {email}. Correct it, or remove one line."
            )
        before = people.get(login, Person(name, email, frozenset()))
        people[login] = Person(name, email or before.email, before.keys | {key})
        identity = {column: row[column] for column in layout.identity if column in row}
        entries.append(Entry(login, name or login, email, identity, key))
    if not entries:
        raise RosterError(f"{path} names no student: below the columns' names, each needs a line.")
    if left_out:
        remarks.append(f"Left out, since they have another role than students: {', '.join(left_out)}.")
    return Roster(tuple(entries), tuple(remarks))


def _same(people: Mapping[str, Person], key: str, email: str, place: str) -> str | None:
    """The login of the person with this key, or else with this address; None if nobody has either."""
    for login, person in people.items():
        if key.casefold() in {known.casefold() for known in person.keys}:
            return login
    same = [login for login, person in people.items() if email and person.email.casefold() == email.casefold()]
    if len(same) > 1:
        raise RosterError(
            f"{place}: {' and '.join(same)} in the class have this address, {email}, both. Add this person by hand: classgan "
            "students add LOGIN"
        )
    return same[0] if same else None


def _namesakes(known: Mapping[str, Person], login: str, name: str, layout: Layout) -> list[str]:
    """Who in the class is called the same, where neither a key nor an address tells whether it is the same person."""
    words = sorted(re.findall(r"\w+", name.casefold()))
    same = [
        other
        for other, person in known.items()
        if words
        and sorted(re.findall(r"\w+", person.name.casefold())) == words
        and not any(key.startswith(f"{layout.name}:") for key in person.keys)
    ]
    return [
        f"{login} and {other} are both called {name}, and no address tells whether they are one person. If they are, take one "
        f"login away: classgan students revoke {login}"
        for other in same
    ]


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


def _first(row: Row, columns: tuple[str, ...]) -> str:
    return next((row[column] for column in columns if row.get(column)), "")


def _table(path: Path) -> tuple[list[int], list[Row]]:
    """The lines' numbers, and their cells by column."""
    reader = csv.DictReader(io.StringIO(text := _text(path), newline=""), delimiter=_delimiter(text))
    lines, rows = [], list[Row]()
    for row in reader:
        lines.append(reader.line_num)
        rows.append({c.strip(): (v or "").strip() for c, v in row.items() if c and c.strip()})
    if not rows and reader.fieldnames:  # an empty list still says whose it is
        lines.append(reader.line_num)
        rows.append({c.strip(): "" for c in reader.fieldnames if c.strip()})
    return lines, rows


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
