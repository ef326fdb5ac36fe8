"""`classgan doctor`: checks that need no class."""

import importlib.machinery
import importlib.util
from types import SimpleNamespace

import pytest

from deployments.student.device_check import CheckFailed, DeviceFound, find_device
from deployments.student.doctor import Doctor, Doubt, Trouble
from gan_core.presets import preset


@pytest.fixture
def doctor() -> Doctor:
    return Doctor.__new__(Doctor)  # these checks ask nothing of the class


def test_the_package_that_runs_is_this_one(doctor, pytestconfig):
    assert doctor.package() == f"installed in {pytestconfig.rootpath}"


def test_another_package_called_flows_is_told(doctor, monkeypatch, tmp_path):
    found = importlib.util.find_spec
    stranger = importlib.machinery.ModuleSpec("flows", None, origin=str(tmp_path / "flows" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: stranger if name == "flows" else found(name))
    with pytest.raises(Trouble, match=f"Python imports `flows` from {tmp_path}"):
        doctor.package()


@pytest.fixture
def found(doctor, monkeypatch):
    """Says what trying the device comes to, in a class without a training."""
    monkeypatch.setattr(doctor, "_waiting", dict)

    def answer(what: DeviceFound | CheckFailed) -> None:
        def find(plan: str, step_mb: int) -> DeviceFound:
            if isinstance(what, CheckFailed):
                raise what
            return what

        monkeypatch.setattr("deployments.student.doctor.find_device", find)

    return answer


def test_a_gpu_that_this_pytorch_knows_nothing_of_is_told(doctor, found, monkeypatch, tmp_path):
    """pip installs a PyTorch for CPUs on Windows: the usual gaming PC would compute on its CPU, and nobody would know why."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found(DeviceFound("cpu", {}, 1_234.5, False, ""))
    with pytest.raises(
        Doubt, match=r"has an NVIDIA GPU, and its PyTorch is the one for CPUs.*computes on cpu, 1,234 images/s"
    ):
        doctor.device()
    found(DeviceFound("cuda:0", {}, 20_000.0, True, ""))
    assert doctor.device() == "cuda:0, 20,000 images/s of the demo's model"


def test_a_device_that_is_not_used_or_that_ends_whoever_tries_it_is_told(doctor, found):
    found(DeviceFound("cpu", {"cuda:0": "its memory is too small for this training"}, 99.0, True, ""))
    with pytest.raises(Doubt, match=r"^cuda:0 is not used: its memory is too small for this training\. This machine"):
        doctor.device()
    found(CheckFailed("trying it ended with status -11"))
    with pytest.raises(Doubt, match=r"ended with status -11\. `CLASSGAN_DEVICE=cpu` uses the CPU at once"):
        doctor.device()


def test_a_training_that_is_too_large_for_this_machine_is_told(doctor, found, monkeypatch):
    small = "a step takes 9,300 MB, and cpu has 4,096 MB for it"
    training = SimpleNamespace(name="faces", plan=preset("better").model_dump(mode="json"), step_mb=9_300)
    monkeypatch.setattr(doctor, "_waiting", lambda: {"faces": training})
    found(DeviceFound("cpu", {}, 99.0, True, small))
    with pytest.raises(Doubt, match=f"^{small}: this machine gets no work of 'faces'"):
        doctor.device()


def test_a_class_that_doesnt_answer_is_a_doubt_and_the_device_is_tried_all_the_same(doctor, monkeypatch):
    doctor.home = "postgresql://nobody@127.0.0.1:1/nothing"
    monkeypatch.setattr(
        "deployments.student.doctor.find_device", lambda plan, step_mb: DeviceFound("cpu", {}, 99.0, True, "")
    )
    assert doctor.device() == "cpu, 99 images/s of the demo's model"
    with pytest.raises(Doubt, match="the class can't say which trainings run"):
        doctor.data()


def test_a_device_is_tried_in_a_process_of_its_own_with_the_model_of_a_training(monkeypatch, tmp_path):
    monkeypatch.setenv("CLASSGAN_DEVICE", "cpu")
    plan = preset("demo").changed(generator_width=16, discriminator_width=16)
    found = find_device(plan.model_dump_json(), 10**9)
    assert found.device == "cpu"
    assert found.too_small.startswith("a step takes 1,000,000,000 MB, and cpu has ")
    with pytest.raises(CheckFailed, match="trying it ended with status 1"):
        find_device("{}", "no number")
    monkeypatch.setattr("deployments.student.device_check.PATIENCE", 0.01)
    with pytest.raises(CheckFailed, match="no answer within 0 s, so its driver hangs"):
        find_device(plan.model_dump_json(), 10**9)
