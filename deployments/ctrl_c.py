"""Hands Ctrl-C on from one process to the next, on every system.

On Windows no signal reaches a single process: only Ctrl-Break does, and only one that leads a process group. Left alone, it
ends a program at once; so whoever shall end in good order is told that it means Ctrl-C.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

# Ctrl-C, a polite kill, a closed window, Ctrl-Break: what a system has of them.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")

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


def cancel_on(numbers: Iterable[int], task: "asyncio.Task[object]") -> None:
    """From now on these signals cancel the task, as Ctrl-C does where asyncio sees to it."""
    loop = task.get_loop()
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(task.cancel))
