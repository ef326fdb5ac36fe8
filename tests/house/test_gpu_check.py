"""`make gpu-check` goes through all its steps on a machine without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_gpu_check_runs_on_a_cpu_under_another_name(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu_check", "--device", "cpu:1", "--json", tmp_path / "gpu.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sections = json.loads((tmp_path / "gpu.json").read_text())["sections"]
    assert [*sections] == ["self-test", "speed", "memory", "class"]
    assert all(row["judgement"]["met"] for section in sections.values() for row in section["rows"] if row["judgement"])
    assert [row["figures"] for row in sections["class"]["rows"]] == [
        {"contributions": 10, "images": 1600, "valid": 10, "invalid": 0}
    ] * 2
