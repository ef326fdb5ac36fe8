"""Child processes and ports: finds free ports, ends processes in order, leaves nothing behind."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from deployments.ctrl_c import endings
from gan_core.errors import StackError

OURS, TRIES = range(20_000, 32_000), 50  # ports that no system gives to who connects, and how many of them are tried

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun


def free_port(wished: int) -> int:
    """The wished port if it is free, else any free one.

    Not one that a system gives to who connects (from 32,768 on Linux, from 49,152 elsewhere): a server takes its port some
    seconds after it was chosen, and meanwhile it would be somebody's.
    """
    for port in (wished, *random.sample(OURS, TRIES)):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise StackError(
        f"No port from {OURS[0]:,} to {OURS[-1]:,} is free on 127.0.0.1, of {TRIES} that were tried. End other servers."
    )


@contextmanager
def calmly() -> Generator[threading.Event]:
    """While this holds, Ctrl-C and a polite kill set the event instead of interrupting: what is being stopped gets stopped."""
    hurry = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield hurry
        return
    before = {number: signal.signal(number, lambda *_: hurry.set()) for number in endings()}
    try:
        yield hurry
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tree_of(pid: int) -> list[psutil.Process]:
    """A process and everything below it; empty if it is gone."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def with_variable(name: str, value: str) -> list[psutil.Process]:
    """The processes that have this in their environment, but this one and those above it."""
    found, mine = [], [psutil.Process(), *psutil.Process().parents()]
    for process in psutil.process_iter() if value else ():
        with suppress(psutil.Error):
            if process.environ().get(name) == value and process not in mine:
                found.append(process)
    return found


def is_engine(process: psutil.Process) -> bool:
    """Whether this is a flow run of the instructor's."""
    with suppress(psutil.Error):
        return "prefect.engine" in process.cmdline()
    return False


def is_gone(run: FlowRun) -> bool:
    """Whether a run that the class's own worker takes has no process here. Right after it was taken, it has none yet."""
    taker = run.labels.get("prefect.worker.name", "instructor")  # another machine may have a worker, too
    return taker == "instructor" and not with_variable("PREFECT__FLOW_RUN_ID", str(run.id))


def stop_trees(roots: Sequence[subprocess.Popen[bytes]], patience: float, hurry: threading.Event) -> None:
    """Interrupt these processes all at once, give them time to end in order, then kill what is left of their trees."""
    tree = [process for root in roots for process in tree_of(root.pid)]
    for root in roots:
        if root.poll() is None:
            root.send_signal(signal.SIGINT)
    kill_after(tree, patience, hurry)
    for root in roots:
        root.wait()


def end(processes: Sequence[psutil.Process], patience: float) -> None:
    """Ask these processes to end, and kill those that haven't after this many seconds."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    kill_after(processes, patience, threading.Event())


def kill_after(processes: Sequence[psutil.Process], patience: float, hurry: threading.Event) -> None:
    """Wait for these processes, and kill those that are left when the time is over or somebody is in a hurry."""
    alive, deadline = list(processes), time.monotonic() + patience
    while alive and not hurry.is_set() and time.monotonic() < deadline:
        _, alive = psutil.wait_procs(alive, 0.2)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, 5)
