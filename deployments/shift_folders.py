"""The folders that shifts' processes run in: an empty one each. Its name says whose it is, so that those of the dead can go."""

import os
import shutil
import tempfile
from pathlib import Path

import psutil


def make(home: Path) -> Path:
    """A new folder for a shift that this process starts."""
    shifts = home / "shifts"
    shifts.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=shifts))


def clear(home: Path) -> None:
    """Remove those whose worker is gone; one in another terminal may still be at work."""
    for folder in (home / "shifts").glob("*-*"):
        owner = folder.name.partition("-")[0]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            shutil.rmtree(folder, ignore_errors=True)
