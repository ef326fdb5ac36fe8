"""The pages say what the code does. Whatever can drift apart is compared here."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
import typer
import yaml
from packaging.specifiers import SpecifierSet

from deployments.cli import app
from gan_core.plan import Plan, checked_plan
from gan_core.policies.aggregation import RULES
from gan_core.policies.codecs import CODECS
from gan_core.policies.sampling import SAMPLERS
from gan_core.presets import PRESETS
from gan_core.scheduler.placement.table import PLACEMENTS
from gan_core.settings import Settings
from gan_core.store.schema import metadata
from gan_core.units import TrainingState, UnitState, Verdict

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
COMMANDS = set(typer.main.get_command(app).commands)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def rows_of(page: str) -> set[str]:
    """The first word in `code` of each table row of a page: what the page explains."""
    return set(re.findall(r"^\| `([^`]+)`", text_of(DOCS / page), flags=re.MULTILINE))


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/generate.py"""
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generator):
    """docs/cli.md, docs/plan.md and .env.example follow from the code."""
    old = [name_of(path) for path, page in generator.PAGES.items() if text_of(path) != page()]
    assert not old, f"run `python docs/generate.py`: {old} no longer say what the code does"


def test_every_command_is_documented():
    headings = set(re.findall(r"^## classgan (\S+)$", text_of(DOCS / "cli.md"), flags=re.MULTILINE))
    assert headings == COMMANDS


def test_every_setting_is_documented():
    """With its default, in the order of gan_core/settings.py."""
    lines = re.findall(r"^#(CLASSGAN_\w+)=(.*)$", text_of(ROOT / ".env.example"), flags=re.MULTILINE)
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    assert lines == [(f"CLASSGAN_{n.upper()}", "" if d is None else str(d)) for n, d in defaults.items()]
    assert not [name for name, field in Settings.model_fields.items() if not field.description]


def test_every_knob_of_the_plan_is_documented():
    assert rows_of("plan.md") == set(Plan.model_fields)
    assert not [name for name, field in Plan.model_fields.items() if not field.description]


def test_every_entry_of_the_policy_tables_is_documented():
    assert rows_of("policies.md") == {*RULES, *CODECS, *SAMPLERS, *PLACEMENTS}


def test_every_table_and_function_of_the_database_is_documented(connection):
    functions = connection.execute(
        "SELECT pronamespace::regnamespace || '.' || proname FROM pg_proc"
        " WHERE pronamespace::regnamespace::text IN ('classgan', 'student')"
    ).fetchall()
    callable_by_students = connection.execute(
        "SELECT 'student.' || proname FROM pg_proc WHERE pronamespace = 'student'::regnamespace"
        " AND has_function_privilege('classgan_student', oid, 'EXECUTE')"
    ).fetchall()
    named = rows_of("database.md")
    assert {table.name for table in metadata.tables.values()} == {n for n in named if "." not in n} - {
        "classgan_student",
        "classgan_owner",
        "classgan_viewer",
    }
    assert {name for (name,) in callable_by_students} == {n for n in named if n.startswith("student.")}
    page = text_of(DOCS / "database.md")
    assert not [name for (name,) in functions if f"`{name}`" not in page]
    views = connection.execute(
        "SELECT schemaname || '.' || viewname FROM pg_views WHERE schemaname IN ('classgan', 'watch')"
    ).fetchall()
    assert not [name for (name,) in views if f"`{name}`" not in page]


@pytest.mark.parametrize(
    ("kind", "type_name"),
    [(UnitState, "unit_state"), (TrainingState, "training_state"), (Verdict, "verdict")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_the_words_for_states_are_the_same_everywhere(kind: type[StrEnum], type_name: str, connection):
    """In Python, in the database, and in the tables of the page that explains them."""
    labels = connection.execute(
        "SELECT enumlabel FROM pg_enum WHERE enumtypid = %s::regtype ORDER BY enumsortorder", (f"classgan.{type_name}",)
    ).fetchall()
    assert [label for (label,) in labels] == [member.value for member in kind]
    assert {member.value for member in kind} <= rows_of("how-it-works.md")


def test_the_student_page_explains_every_verdict():
    assert rows_of("student.md") == {verdict.value for verdict in Verdict}


def pasteable(page: str) -> list[str]:
    return re.findall(r"^```sql\n(.*?)^```", text_of(DOCS / page), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("query", pasteable("database.md"), ids=lambda query: " ".join(query.split())[:60])
def test_queries_to_paste_work(query: str, connection: psycopg.Connection):
    """Against the real schema, on a fresh database."""
    with connection.transaction(force_rollback=True):
        connection.execute(query)


def test_there_are_queries_to_paste():
    assert len(pasteable("database.md")) > 5


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path):
    """Files and headings; what lies outside is not asked."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page))):
        if re.match(r"https?://", target):
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        assert file.is_relative_to(ROOT), f"{target} leads out of the project"
        assert file.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(text_of(file)), f"{target}: no such heading"


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_is_reachable():
    """The index names every other page."""
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", text_of(DOCS / "index.md"))}
    lost = [name_of(page) for page in PAGES if page not in linked and page != DOCS / "index.md"]
    assert not lost, f"docs/index.md leads to none of {lost}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_pages_exist(page: Path):
    """`classgan X` and `make X` in code are a command and a target. tests/house/test_pages.py looks at options and values."""
    text = re.sub(r"^.*\(in work.*$", "", text_of(page), flags=re.MULTILINE)
    code = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    commands = set(re.findall(r"^(?:\S*/)?classgan ([a-z][a-z-]*)", "\n".join(code), flags=re.MULTILINE))
    assert commands <= COMMANDS
    wanted = set(re.findall(r"^make ([a-z][a-z-]*)", "\n".join(code), flags=re.MULTILINE))
    if wanted:
        targets = set(re.findall(r"^([a-z][a-z-]*):", text_of(ROOT / "Makefile"), flags=re.MULTILINE))
        assert wanted <= targets


def test_presets_in_prefect_yaml_are_the_plan_presets():
    """The form of a deployment starts with exactly the preset of its name."""
    deployments = yaml.safe_load(text_of(ROOT / "prefect.yaml"))["deployments"]
    filled_in = {
        deployment["name"].removeprefix("train-"): checked_plan(deployment["parameters"]["plan"])
        for deployment in deployments
        if "plan" in deployment.get("parameters", {})
    }
    assert filled_in == {name: plan for name, plan in PRESETS.items() if plan != Plan()}


def missing_tests(text: str) -> list[str]:
    """What is written as `tests/file.py::test_name` and isn't there."""
    named = re.findall(r"`(tests/[^`\s]+)::([^`\s]+)`", text)
    return [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or f"def {name}(" not in text_of(ROOT / file)
    ]


@pytest.mark.parametrize("name", ["guarantees.md", "security.md"])
def test_every_promise_names_tests_that_exist(name):
    """These pages are worth what their tests are worth: no row of their tables without one."""
    page = text_of(DOCS / name)
    promises = re.findall(r"^\| (?!promise |they want )(.+)$", page, flags=re.MULTILINE)
    assert len(promises) > 10
    assert not [promise for promise in promises if not re.search(r"`tests/\S+\.py::test_\w+`", promise)]
    assert not missing_tests(page)


@pytest.mark.parametrize("name", ["tests/house/test_docs.py::test_nonsense", "tests/nowhere.py::missing_tests"])
def test_a_test_that_does_not_exist_is_noticed(name):
    assert missing_tests(f"| a promise | | | `{name}`, `tests/house/test_docs.py::missing_tests` |") == [name]


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("*.md")), ids=name_of)
def test_a_decision_has_a_date_and_three_parts(page: Path):
    text = text_of(page)
    assert text.startswith(f"# {int(page.name[:4])}. ")
    assert re.search(r"^\d{4}-\d\d-\d\d$", text, flags=re.MULTILINE)
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == ["Context", "Decision", "Consequences"]


# The capabilities of three earlier systems, by the letter of the system and the number of lines of each kind.
PARITY = {"G-R": 8, "G-C": 26, "G-L": 10, "G-T": 8, "G-S": 6, "G-O": 8, "G-M": 14, "G-W": 8, "G-D": 7, "G-P": 4}
PARITY |= {"G-B": 9, "G-E": 11, "G-N": 7, "G-DOC": 8, "G-H": 13, "S-": 30, "M-": 24}


def parity_rows() -> list[tuple[str, str]]:
    """(id, where it is found here)"""
    return re.findall(r"^\| ([GSM]-\w+) \| [^|]+ \| ([^|]+) \|$", text_of(DOCS / "parity.md"), flags=re.MULTILINE)


def test_no_capability_of_the_earlier_systems_is_left_out():
    wanted = [f"{kind}{number}" for kind, lines in PARITY.items() for number in range(1, lines + 1)]
    assert [name for name, _ in parity_rows()] == wanted


def test_what_the_comparison_names_is_there():
    """Files and commands, except where they are being worked on."""
    for name, place in parity_rows():
        if "in work" in place:
            continue
        named = re.findall(r"`([^`]+)`", place)
        files = [word for word in named if re.fullmatch(r"[\w./-]+/[\w.-]+|[\w-]+\.(?:toml|txt|yml|yaml)", word)]
        assert not [file for file in files if not (ROOT / file).exists() and not file.startswith("/")], name


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path):
    """`make docs`: every page has its place, every link leads somewhere, and nothing comes from elsewhere."""
    built = subprocess.run(  # without --quiet: warnings that nobody sees aren't counted either
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    fetched = (
        r"""<(?:script|img|iframe)\b[^>]*\bsrc="https?:|<link\b[^>]*\bhref="https?:|url\(["']?https?:|class="mermaid"""
    )
    pages = [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".css")]
    assert len(pages) > len(PAGES)
    assert not [path.name for path in pages if re.search(fetched, text_of(path))]
    assert "What is inside" in text_of(tmp_path / "start.html")  # README
    assert "CLASSGAN_HOME" in text_of(tmp_path / "source" / "env.example.html")


def test_conda_and_the_dev_container_install_what_the_project_asks_for():
    conda = yaml.safe_load(text_of(ROOT / "environment.yml"))["dependencies"]
    container = re.sub(r"^//.*$", "", text_of(ROOT / ".devcontainer" / "devcontainer.json"), flags=re.MULTILINE)
    versions = [*re.findall(r"python=(\S+)", str(conda[0])), *re.findall(r"python:([\d.]+)", container)]
    supported = SpecifierSet(tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["requires-python"])
    assert len(versions) == 2
    assert all(version in supported for version in versions)
    assert conda[-1]["pip"] == ["--constraint constraints.txt", "--editable .[instructor]"]
    assert json.loads(container)["postCreateCommand"] == "make .venv/installed-dev"
    assert "$(VENV)/installed-%:" in text_of(ROOT / "Makefile")
