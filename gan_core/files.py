"""Files that are there as a whole or not at all."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, all of it or nothing; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    working = path.with_name(f".{path.name}.part")
    working.unlink(missing_ok=True)
    descriptor = os.open(working, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        working.replace(path)
    finally:
        working.unlink(missing_ok=True)
