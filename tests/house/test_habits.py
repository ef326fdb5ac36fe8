"""The files around the code say the same as the code: licence, version, changelog, workflows, hooks."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def workflow(name: str) -> dict:
    return yaml.safe_load(text_of(f".github/workflows/{name}.yml"))


def recipe(target: str) -> list[str]:
    """What the Makefile runs for a target, as a shell gets it."""
    lines = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text_of("Makefile"), flags=re.MULTILINE)
    assert lines, f"the Makefile has no target {target}"
    return [line.removeprefix("\t@").replace('"$(BIN)/python"', "python") for line in lines[1].splitlines()]


def test_the_quick_tests_run_on_every_python_and_system_that_we_name():
    """A Python that `requires-python` allows and the matrix leaves out would be a promise that nobody tries."""
    matrix = workflow("tests")["jobs"]["quick"]["strategy"]["matrix"]
    supported = SpecifierSet(PROJECT["requires-python"])
    assert matrix["python"] == [f"3.{minor}" for minor in range(30) if f"3.{minor}" in supported]
    assert {system.partition("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == matrix["python"]


def test_windows_runs_what_make_runs_elsewhere():
    """There is no make there, so the workflow repeats two lines of the Makefile."""
    steps = workflow("tests")["jobs"]["quick"]["steps"]
    (windows,) = [step["run"] for step in steps if step.get("if") == "runner.os == 'Windows'"]
    install, test = windows.splitlines()
    assert [test] == recipe("test-quick")
    assert install.replace("[dev]", "[$*]") in recipe(r"\$\(VENV\)/installed-%")


def test_the_full_suite_runs_as_a_newcomer_would_run_it():
    full = workflow("tests")["jobs"]["full"]
    assert full["steps"][-1]["run"] == "bash .ci/run"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_little_and_ends(path: Path):
    """It reads unless a job says why it writes, has a time limit, and uses actions of a known major version."""
    flow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert flow["permissions"] == {"contents": "read"}
    assert "concurrency" in flow
    for job in flow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "some/action@v1"))


def test_a_commit_is_checked_by_make_check():
    (repository,) = yaml.safe_load(text_of(".pre-commit-config.yaml"))["repos"]
    (hook,) = repository["hooks"]
    assert (repository["repo"], hook["language"], hook["entry"]) == ("local", "system", "make check")
    assert hook["pass_filenames"] is False


def test_the_version_is_the_same_everywhere():
    """In pyproject.toml, in CITATION.cff, and at the top of what CHANGELOG.md calls released; with its date."""
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what CFF 1.2.0 asks for
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    assert released[0] == (citation["version"], citation["date-released"])
    assert citation["version"] == PROJECT["version"]


def test_the_licence_is_named_and_goes_along():
    (file,) = PROJECT["license-files"]
    assert text_of(file).startswith(f"{PROJECT['license']} License\n")
    assert yaml.safe_load(text_of("CITATION.cff"))["license"] == PROJECT["license"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name
)
def test_a_form_for_issues_is_one(path: Path):
    """GitHub shows a form only if it has a name, a description and a body whose fields have labels."""
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "config.yml":
        assert form["blank_issues_enabled"] is True
        return
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields) > 0


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_and_targets_in_the_root_pages_exist(name: str):
    """tests/test_docs.py looks at README.md and docs/."""
    text = text_of(name)
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of("Makefile"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z][a-z-]*)", text)) <= targets
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("https:")]
    assert not [link for link in links if not (ROOT / link).exists()]


def test_make_help_fits_a_terminal():
    """Two groups, every target, 80 columns: the name takes 23 of them."""
    lines = re.findall(r"^([a-z][a-z-]*):.*?  ## (.+)$", text_of("Makefile"), flags=re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.+)$", text_of("Makefile"), flags=re.MULTILINE)
    assert {name for name, _ in lines} == set(phony[1].split())
    assert not [line for _, line in lines if len(line) > 80 - len("  make export-grades   ")]


@pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("make") is None,
    reason="there is no make here: install it, or run this on Linux, macOS or in WSL",
)
def test_another_python_gets_an_environment_of_its_own():
    """Or `make test PYTHON=python3.13` would run the tests with whatever made `.venv`."""

    def planned(*words: str) -> str:
        clean = {
            k: v for k, v in os.environ.items() if not k.startswith("MAKE")
        }  # what this test's own `make` was told
        command = ["make", "-n", "test", *words]
        done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    assert planned().startswith('".venv/bin/python" -m pytest')
    assert planned("PYTHON=python3.13").startswith('".venv-python3.13/bin/python" -m pytest')
    assert planned("PYTHON=/usr/bin/python3").startswith('".venv/bin/python" -m pytest')


POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}


def test_every_test_can_be_collected_on_windows():
    """A file that imports one of these at its top would end the whole run there, whatever tests were asked for."""
    found = {
        path.relative_to(ROOT).as_posix(): modules
        for path in (ROOT / "tests").rglob("*.py")
        if (modules := POSIX_ONLY & imported_at_once(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def imported_at_once(tree: ast.Module) -> set[str]:
    """The modules that the statements at a file's top import."""
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    return {*names, *(node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module)}
