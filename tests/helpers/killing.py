"""As if a machine had lost its power."""

from contextlib import suppress

import psutil


def kill_tree(root: int) -> None:
    """kill -9 for a process and everything below it."""
    process = psutil.Process(root)
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            each.kill()
