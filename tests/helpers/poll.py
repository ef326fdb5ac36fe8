"""Waiting in tests: look again until it is so, with a deadline. Never a sleep that hopes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 30, what: str = "the condition", every: float = 0.05) -> T:
    """The first true answer. Fails with the last answer when the deadline passes."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about within {seconds:g} s; last seen: {answer!r}")
        time.sleep(every)
    return answer
