"""Hands Ctrl-C on from one process to the next, on every system.

On Windows no signal reaches a single process: only Ctrl-Break does, and only one that leads a process group. Left alone, it
ends a program at once; so whoever shall end in good order is told that it means Ctrl-C.
"""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

# Ctrl-C, a polite kill, a closed window, Ctrl-Break: what a system has of them.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")

GLANCE = 0.2  # seconds between looks at a process

OWN_GROUP: dict[str, Any]  # options of Popen
if sys.platform == "win32":
    OWN_GROUP = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    INTERRUPT = signal.CTRL_BREAK_EVENT
else:
    OWN_GROUP = {"start_new_session": True}
    INTERRUPT = signal.SIGINT


def endings() -> list[signal.Signals]:
    """The signals that ask this process to end: what the system has of them, and `nohup` didn't hide."""
    there = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    return [number for number in there if not (number.name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN)]


def heed_all() -> None:
    """Each of them raises KeyboardInterrupt from now on: a notebook's cell may have switched Ctrl-C off."""
    for number in endings():
        signal.signal(number, signal.default_int_handler)


def start_apart(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a process that doesn't get the terminal's Ctrl-C: that is the caller's to hand on, once. Options: Popen's."""
    return subprocess.Popen(command, **options, **OWN_GROUP)  # ty: ignore[invalid-explicit-return]


def hand_on(process: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C for a process that was started apart; nothing if it has ended."""
    if process.poll() is None:
        process.send_signal(INTERRUPT)


def wait_for(process: "subprocess.Popen[bytes]") -> None:
    """Wait until a process has ended. Ctrl-C interrupts this on every system."""
    # In a wait without an end, Windows sees neither Ctrl-C nor Ctrl-Break (Python issue 28168).
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GLANCE)


def pause(seconds: float) -> None:
    """Sleep. Whatever asks this process to end interrupts it; on Windows, Ctrl-Break doesn't wake who sleeps."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, GLANCE))


def cancel_on(numbers: Iterable[int], task: "asyncio.Task[object]") -> None:
    """From now on these signals cancel the task, as Ctrl-C does where asyncio sees to it."""
    loop = task.get_loop()
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(task.cancel))
