"""Become a training's coordinator."""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from gan_core.errors import Finished, LeadLost
from gan_core.plan import Plan
from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator.coordinator import Coordinator


@contextmanager
def become_coordinator(name: str, plan: Plan) -> Generator["Coordinator"]:
    """The coordinator of this training, continued where it stood; its failure is written down in words.

    Ctrl-C and a polite kill let the iteration at hand end and pause the training; a second one stops at once.

    Raises:
        GanError: the training can't be started or continued; the sentence says why.
        Finished: a person paused or cancelled it, or another coordinator brought it to its end.
        LeadLost: another coordinator leads it; this one may stand by.
    """
    from gan_core.coordinator.coordinator import Coordinator

    mine = settings()
    with Coordinator(mine.database_url, name, plan, mine.cache, mine.data) as training, _signals_pause(training):
        try:
            yield training
        except (Finished, LeadLost):
            raise
        except Exception as exc:
            training.fail(str(exc))
            raise
        except BaseException as exc:  # Prefect suspends or cancels the run, or somebody is in a hurry
            training.pause(
                f"the end of its Prefect run ({type(exc).__name__})",
                f"its run in Prefect was ended; `classgan resume {name}` goes on, `classgan cancel {name}` ends it for good",
            )
            raise


@contextmanager
def _signals_pause(training: "Coordinator") -> Generator[None]:
    """While this holds, the first Ctrl-C or polite kill asks the training to pause."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        training.stop_asked = "Ctrl-C" if number == signal.SIGINT else "a termination signal"

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if signal.SIGTERM in came:  # Prefect wants to see it, to report how the run ended
            os.kill(os.getpid(), signal.SIGTERM)
