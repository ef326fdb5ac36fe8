"""The tests run for everybody: whatever the user's home is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "not to be written"])
def test_no_test_needs_a_home(is_there, tmp_path):
    """Prefect makes a folder there when it is imported, if nobody names another, and warns when it can't."""
    home = tmp_path / "home"
    if is_there:
        home.touch()  # for root, too, nothing can be written below a file
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/runs/test_artifacts.py"],
        cwd=ROOT,
        env={**{k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "PYTEST_"))}, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert home.exists() == is_there
