"""`classgan doctor`: checks that need no class."""

import importlib.machinery
import importlib.util

import pytest

from deployments.student.doctor import Doctor, Trouble


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
