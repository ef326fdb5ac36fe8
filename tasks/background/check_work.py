"""Recompute some contributions beside the training, to check them."""

import logging
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator.coordinator import Coordinator

log = logging.getLogger("classgan.check")

SECONDS = 1.0  # between looks when nothing waits
BUSY_SHARE = 0.25  # of its time that the checker computes while this machine has no idle core: the class goes first
LAST_SECONDS = 10.0  # for what still waits when the training is done


@contextmanager
def checked_work(training: "Coordinator") -> Generator[None]:
    """While this holds, contributions are checked one after the other, on a thread of its own: neither iterations nor
    samples wait for it. When the training is done, what still waits is checked, for at most LAST_SECONDS.
    """
    pace = _Pace()
    thread = threading.Thread(target=_check, args=(training, pace), name="checks", daemon=True)
    thread.start()
    try:
        yield
        pace.done.set()
        thread.join(LAST_SECONDS)
    finally:
        pace.done.set()
        pace.given_up.set()
        thread.join()


class _Pace:
    """Called after each batch: waits while others need this machine, and gives up when nobody waits for the result."""

    def __init__(self) -> None:
        self.done, self.given_up = threading.Event(), threading.Event()
        self.begin()

    def begin(self) -> None:
        """A check begins: the time in which nothing was computed is not to be made up for."""
        self._since = time.monotonic()

    def __call__(self) -> None:
        from gan_core.coordinator.checker import Interrupted

        if self.given_up.is_set():
            raise Interrupted
        if _is_busy():
            self.done.wait((time.monotonic() - self._since) * (1 / BUSY_SHARE - 1))
        self._since = time.monotonic()


def _is_busy() -> bool:
    """Whether this machine has no core to spare."""
    cores = os.cpu_count() or 1
    return not hasattr(os, "getloadavg") or os.getloadavg()[0] > cores - 1  # Windows doesn't tell


def _check(training: "Coordinator", pace: _Pace) -> None:
    from gan_core.coordinator.checker import Checker, Interrupted
    from gan_core.errors import GanError

    mine = settings()
    checker = Checker(
        mine.database_url,
        training.training_id,
        images=training.images,
        device=mine.device,
        on_batch=pace,
        should_stop=pace.given_up.is_set,
    )
    try:
        while not pace.given_up.is_set():
            nothing_more_comes = pace.done.is_set()  # asked before looking, or the last ones would be missed
            pace.begin()
            if checker.check_next():
                continue
            if nothing_more_comes:
                break
            pace.done.wait(SECONDS)
    except Interrupted:
        log.info("A check was given up, since the training ended.")
    except GanError as exc:
        log.warning("No contributions are checked any more: %s", exc)
    finally:
        checker.close()
