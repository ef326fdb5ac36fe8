"""The watchdog: notices when a machine is alive but its computing is stuck, so that it does not keep its lease."""

import time
from dataclasses import dataclass

STUCK = 20.0  # times its usual time for a batch: then a machine counts as stuck, and gives its lease up
STUCK_AT_LEAST = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Stuck:
    lease: int
    seconds: float  # since its last batch


class Watchdog:
    """Whether the computing moves: told of every batch by one thread, asked by another."""

    def __init__(self) -> None:
        self._lease: int | None = None
        self._last = 0.0
        self.usual = 0.0  # seconds a batch, moving average

    def begin(self, lease: int) -> None:
        self._last, self._lease = time.monotonic(), lease

    def feed(self) -> None:
        now = time.monotonic()
        taken, self._last = now - self._last, now
        self.usual = 0.9 * self.usual + 0.1 * taken if self.usual else taken

    def end(self) -> None:
        self._lease = None

    def stuck(self) -> Stuck | None:
        """The lease that doesn't move any more, if it is so."""
        lease, silent = self._lease, time.monotonic() - self._last
        if lease is None or silent < max(STUCK_AT_LEAST, STUCK * self.usual):
            return None
        return Stuck(lease, silent)
