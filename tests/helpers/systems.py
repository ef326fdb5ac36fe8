"""What Windows does otherwise. A test that asks here runs there as far as it can, or says where it can be run."""

import stat
import sys
from pathlib import Path

import pytest

ELSEWHERE = "run this test on Linux or macOS, or in WSL"


def needs(what: str) -> pytest.MarkDecorator:
    """For a test of something that Windows hasn't got."""
    return pytest.mark.skipif(sys.platform == "win32", reason=f"Windows has no {what}: {ELSEWHERE}")


def is_only_its_owners(path: Path) -> bool:
    """Whether nobody else may read a file or a folder. Windows keeps no modes: there its folder's rights say so, which tests
    don't set.
    """
    return sys.platform == "win32" or not stat.S_IMODE(path.stat().st_mode) & 0o077


def link(path: Path, target: Path | str) -> None:
    """Make a symbolic link; skips the test where nobody may, as on Windows without its developer mode."""
    try:
        path.symlink_to(target, target_is_directory=Path(target).is_dir())
    except OSError as exc:
        if sys.platform != "win32":
            raise
        pytest.skip(f"no symbolic links here ({exc}): switch on Windows' developer mode, or {ELSEWHERE}")
