"""Writes files atomically: each is there as a whole or not at all."""

import os
import tempfile
from pathlib import Path


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
            os.replace(working, path)
        except BaseException:
            os.unlink(working)
            raise
    except OSError as exc:
        exc.filename, exc.filename2 = str(path), None  # a full disk names no file at all
        raise


def write_private(path: Path, content: bytes) -> None:
    """The same for a file that only its owner may read."""
    write_whole(path, content, 0o600)
