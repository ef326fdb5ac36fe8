"""Writes files atomically: each is there as a whole or not at all."""

import os
import sys
import tempfile
import time
from pathlib import Path

HELD = 5.0  # seconds that a virus scanner may keep a file that was just written


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file, all of it or nothing; its folder is made if need be. Of two writers at once, the last one wins.

    Raises:
        OSError: it can't be written; names this file, not the working one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor, working = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(working, mode)
            move(working, path)
        except BaseException:
            os.unlink(working)
            raise
    except OSError as exc:
        exc.filename, exc.filename2 = str(path), None  # a full disk names no file at all
        raise


def move(source: str | Path, target: str | Path) -> None:
    """Give a file or a new folder its name, in place of an older file. On Windows that fails while another program has it
    open, as virus scanners do for a moment: tried again until HELD.

    Raises:
        OSError: it can't be done.
    """
    until = time.monotonic() + HELD
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() > until:
                raise
            time.sleep(0.05)


def write_private(path: Path, content: bytes) -> None:
    """The same for a file that only its owner may read."""
    write_whole(path, content, 0o600)
