"""Values that a student may set, each made to fit: names begin with the login, texts are short, numbers within reason."""

import re
from typing import Any
from uuid import UUID

from deployments.server.gate.logins import Person

MACHINES = 32  # names of workers a student may have, as in the database
SUFFIX = re.compile(r"[.\- ][\w.:\- ]{1,40}")


def machine_name(person: Person, asked: Any, students: list[str]) -> str:
    """The name a worker gets: what it asks for if that is its student's login with or without an ending, else the login.

    `ada.2` is ada's second machine, unless there is a student called `ada.2`.
    """
    login = person.login
    if not isinstance(asked, str) or not is_named_after(asked, login):
        return login
    if any(len(other) > len(login) and is_named_after(asked, other) for other in students):
        return login
    if asked not in person.machines:
        if len(person.machines) >= MACHINES:
            return login
        person.machines.add(asked)
    return asked


def run_name(login: str, asked: Any) -> str:
    """The name a run gets: `shift of LOGIN`, and which machine or device if it says so."""
    plain = f"shift of {login}"
    return asked if isinstance(asked, str) and is_named_after(asked, plain) else plain


def is_named_after(name: str, login: str) -> bool:
    return name == login or (name.startswith(login) and SUFFIX.fullmatch(name[len(login) :]) is not None)


def text(found: Any, limit: int) -> str:
    """A value as text, cut to a length, without the zero that PostgreSQL can't keep."""
    return str(found if isinstance(found, str | int | float) else "")[:limit].replace("\0", "")


def seconds(found: Any) -> int:
    """A heartbeat interval within reason: after three of them a silent worker counts as gone."""
    return min(max(found, 1), 60) if type(found) is int else 30


def harmless(markdown: str) -> str:
    """Markdown without images, links and HTML: the instructor's browser shall fetch nothing that a student names."""
    return markdown.replace("\0", "").replace("<", "&lt;").replace("[", "&#91;").replace("://", ":&#47;&#47;")


def at(found: Any, *names: str) -> Any:
    """What lies below these names, one inside the other; None if it isn't there."""
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def is_uuid(found: Any) -> bool:
    try:
        return isinstance(found, str) and bool(UUID(found))
    except ValueError:
        return False
