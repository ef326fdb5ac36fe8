"""Starts the parts of a class, and starts again those that end: each by itself, so that none takes the others along."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from deployments.local.notes import Illness
from gan_core.errors import StackError

Process = subprocess.Popen[bytes]

WELL = 15.0  # seconds: who lived that long had started. A Prefect server that can't start needs several to say so
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a part that wasn't well is started again; doubled each time
ATTEMPTS = 3  # lives of a part that was never well; then it is believed that it can't start here


@dataclass
class Part:
    """One program of a class, and how it has fared.

    Args:
        launch: starts it, without waiting for it.
        log: where it writes.
        is_needed: the class can't do without it: if it can't start at all, nor can the class.
    """

    name: str
    launch: Callable[[], Process]
    log: Path
    is_needed: bool = True
    process: Process | None = None
    was_well: bool = False  # at least once
    _started: float = 0.0
    _short_lives: int = 0  # in a row
    _due: float | None = None  # when it is started again; None while it lives
    illness: Illness | None = None  # from its end until it is well again

    def start(self) -> Process:
        self._started, self._due = monotonic(), None
        self.process = self.launch()
        return self.process

    def look(self) -> str:
        """Start it again if it has ended and its time has come; returns what is new, in words, or "".

        Raises:
            StackError: it is needed, and can't start at all.
        """
        now = monotonic()
        if self._due is None:
            if self.process is not None and self.process.poll() is None:
                return self._recovered() if now - self._started >= WELL else ""
            return self._ended(now)
        if now < self._due:
            return ""
        try:
            self.start()
        except (StackError, OSError) as exc:
            return f"{self._ended(now)} {exc}"
        return ""

    def _recovered(self) -> str:
        self.was_well, self._short_lives, was_ill = True, 0, self.illness
        self.illness = None
        return f"{self.name} is well again." if was_ill and was_ill.ends > 1 else ""

    def _ended(self, now: float) -> str:
        lived = now - self._started
        self.was_well |= lived >= WELL
        self._short_lives = 0 if lived >= WELL else self._short_lives + 1
        if self.is_needed and not self.was_well and self._short_lives >= ATTEMPTS:
            raise StackError(f"{self.name} does not start: it has ended {ATTEMPTS} times at once. {self.log} says why.")
        self._due = now + (min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._short_lives - 1)) if self._short_lives else 0.0)
        if self.illness is None:
            self.illness = Illness(part=self.name, since=datetime.now(UTC), ends=0, log=str(self.log))
        self.illness.ends += 1
        return self.illness.sentence()
