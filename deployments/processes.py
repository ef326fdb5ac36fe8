"""Child processes and ports: found free, ended in order, nothing left behind."""

import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import closing, suppress

import psutil

from gan_core.errors import StackError


def free_port(wished: int) -> int:
    """The wished port if it is free, else any free one."""
    for port in (wished, 0):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise StackError("No free port on 127.0.0.1.")


def stop_trees(roots: Sequence[subprocess.Popen[bytes]], patience: float) -> None:
    """Interrupt these processes all at once, give them time to end in order, then kill what is left of their trees."""
    tree: list[psutil.Process] = []
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(root.pid)
            tree += [process, *process.children(recursive=True)]
    for root in roots:
        if root.poll() is None:
            root.send_signal(signal.SIGINT)
    end(tree, patience, interrupt=False)
    for root in roots:
        root.wait()


def end(processes: Sequence[psutil.Process], patience: float, interrupt: bool = True) -> None:
    if interrupt:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
    _, alive = psutil.wait_procs(processes, patience)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, 5)
