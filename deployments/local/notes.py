"""What a class on this machine notes of itself, in `stack.json`: for commands in other terminals, and for the start after a kill."""

from datetime import datetime
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from gan_core.files import write_private

Identity = tuple[int, float]  # of a process: its number alone may be another's by now


class Illness(BaseModel):
    """A part that has ended, and has not been well since."""

    part: str
    since: datetime
    ends: int  # how often it has ended in that time
    log: str

    def sentence(self) -> str:
        since = f"{self.since.astimezone():%H:%M:%S}"
        if self.ends == 1:
            return f"{self.part} ended at {since} and is started again. Its log: {self.log}"
        return f"{self.part} is ill since {since}: it has ended {self.ends} times, and is started each time. Its log: {self.log}"


class Notes(BaseModel):
    """A class's processes and addresses, as far as it has come."""

    owner: Identity | None = None  # `classgan up` itself
    processes: list[Identity] = []
    mark: str = ""  # in the environment of every process of the class
    database: str = ""
    sockets: str = ""  # PostgreSQL's folder for them
    ui: str = ""
    is_up: bool = False  # all of it was started
    ill: list[Illness] = []

    def write(self, home: Path) -> "Notes":
        write_private(home / "stack.json", self.model_dump_json().encode())  # the URL may hold a password
        return self

    @property
    def is_alive(self) -> bool:
        """Whether the class that wrote this still runs."""
        return self.owner is not None and is_process(self.owner)


def notes_in(home: Path) -> Notes:
    """What lies there; empty notes if nothing does, or nothing that can be read."""
    try:
        return Notes.model_validate_json((home / "stack.json").read_bytes())
    except (OSError, ValidationError):
        return Notes()


def ill_parts(home: Path) -> list[Illness]:
    """The ill parts of the class that runs in this folder."""
    notes = notes_in(home)
    return notes.ill if notes.is_alive else []


def no_class(home: Path) -> str:
    """What every command says that finds none."""
    return f"No class runs in {home}, so nothing moves there. Start it: `classgan up` (or `make up`)."


def identity(pid: int) -> Identity:
    return pid, psutil.Process(pid).create_time()


def is_process(known: Identity) -> bool:
    """Whether this very process is there."""
    try:
        return abs(psutil.Process(known[0]).create_time() - known[1]) < 1
    except psutil.NoSuchProcess:
        return False
