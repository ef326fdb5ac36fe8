"""`classgan doctor`: checks that need no class."""

import importlib.machinery
import importlib.util

import pytest

from deployments.student.doctor import Doctor, Doubt, Trouble


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


def test_a_gpu_that_this_pytorch_knows_nothing_of_is_told(doctor, monkeypatch, tmp_path):
    """pip installs a PyTorch for CPUs on Windows: the usual gaming PC would compute on its CPU, and nobody would know why."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CLASSGAN_DEVICE", "cpu")
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(
        Doubt, match=r"has an NVIDIA GPU, and its PyTorch is the one for CPUs.*computes on cpu, [\d,]+ images/s"
    ):
        doctor.device()
