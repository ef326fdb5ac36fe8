"""As if a machine had lost its power."""

import subprocess
from contextlib import suppress

import psutil


def kill_tree(root: int) -> None:
    """kill -9 for a process and everything below it."""
    process = psutil.Process(root)
    below = process.children(recursive=True)
    for each in [process, *below]:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(below, timeout=30)  # while one of PostgreSQL's writes its last, no new PostgreSQL can start


def engines(worker: subprocess.Popen) -> list[psutil.Process]:
    """The living flow runs' processes below a Prefect worker."""
    found = []
    for process in psutil.Process(worker.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie counts as gone
            if {"prefect.engine", "deployments.student.locked_process"} & set(process.cmdline()):
                found.append(process)
    return found
