"""The wheel: four packages with their SQL, a command that answers, names that are ours alone."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

PACKAGES = ("gan_core", "tasks", "flows", "deployments")
BIN = "Scripts" if sys.platform == "win32" else "bin"  # where a virtual environment has its commands


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, pytestconfig) -> Path:
    """Built from this checkout, without network."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, pytestconfig.rootpath],
        check=True,
        capture_output=True,
    )
    return next(out.glob("classgan-*.whl"))


def test_the_wheel_holds_every_module_and_every_file_they_read(wheel, pytestconfig):
    shipped = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        for path in (pytestconfig.rootpath / package).rglob("*"):
            if path.suffix in (".py", ".sql", ".mako", ".json", ".yml", ".yaml") and "__pycache__" not in path.parts:
                assert path.relative_to(pytestconfig.rootpath).as_posix() in shipped
    assert {"deployments/prefect.yaml", "deployments/troubleshooting.md"} <= shipped
    assert not [name for name in shipped if name.startswith(("tests/", "bench/", "docs/"))]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A new virtual environment with the wheel; what it depends on is borrowed from this one, so no network is needed."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    python = folder / BIN / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    site = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    (site / "borrowed.pth").write_text(
        sysconfig.get_path("purelib") + "\n", encoding="utf-8"
    )  # .pth files in there are not followed
    return folder


@pytest.mark.slow
def test_the_installed_command_answers_without_torch_and_prefect(installed, tmp_path):
    answer = subprocess.run(
        [installed / BIN / "classgan", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Train one GAN on the machines of a whole class" in answer.stdout
    heavy = subprocess.run(
        [
            installed / BIN / "python",
            "-P",
            "-c",
            "import sys; sys.argv = ['classgan', '--help']\nimport deployments.cli as c\ntry:\n    c.main()\nexcept SystemExit:\n    pass\n"
            "print('HEAVY', sorted({'torch', 'prefect', 'sqlalchemy', 'numpy'} & sys.modules.keys()), c.__file__)",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    last = heavy.stdout.splitlines()[-1]
    assert "HEAVY []" in last
    assert str(installed) in last, "the checkout answered, not the wheel"


@pytest.mark.slow
def test_the_installed_package_finds_its_sql_and_deployments(installed, tmp_path):
    found = subprocess.check_output(
        [
            installed / BIN / "python",
            "-P",
            "-c",
            "from gan_core.store.migrate import function_files; from deployments.prefect_settings import prefect_file\n"
            "print(len(function_files()), prefect_file())",
        ],
        cwd=tmp_path,
        text=True,
    ).split(maxsplit=1)
    assert int(found[0]) >= 14
    assert str(installed) in found[1]


def test_the_four_names_belong_to_us_alone():
    owners = packages_distributions()
    for package in PACKAGES:
        assert set(owners.get(package, ["classgan"])) == {"classgan"}, package
