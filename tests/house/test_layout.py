"""The house stands as drawn: arrows point down, modules stay small, names collide with nobody, dangerous doors stay shut."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gan_core", "tasks", "flows", "deployments")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TOOLS = sorted(path for folder in ("bench", "docs", "tests/helpers") for path in (ROOT / folder).rglob("*.py"))
HARD_LIMIT = 400  # lines a module
ROOM = 12  # modules a folder

# Who may read or hand on the environment, and why. Everybody else asks settings().
ENVIRONMENT_READERS = {
    "deployments/prefect_settings.py": "what children get",
    "deployments/student/worker.py": "which GPUs CUDA lets this process use",
}
# Who may ask autograd for a gradient.
GRADIENT_TAKERS = {
    "gan_core/networks/gradients.py": "one network in, its own gradient out",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def dotted_names(path: Path) -> frozenset[str]:
    """Every name, dotted attribute, keyword and import of a module: `torch.load`, `allow_pickle`, `os.environ`."""
    return frozenset(_dotted_names(tree_of(path)))


def _dotted_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield module or ""
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Attribute():
                yield ast.unparse(node)
            case ast.keyword(arg=str(arg)):
                yield arg


def files_that_name(*wanted: str) -> dict[str, set[str]]:
    """File → which of these dotted names (or anything below them) it uses."""
    found = {
        name_of(path): {
            name for name in dotted_names(path) if any(name == w or name.startswith(f"{w}.") for w in wanted)
        }
        for path in MODULES
    }
    return {path: names for path, names in found.items() if names}


def test_imports_point_down():
    """The contracts in pyproject.toml: layers, no Prefect in the core, no tensors in the store."""
    check = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    result = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=name_of)
def test_a_module_stays_within_its_budget(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= HARD_LIMIT, f"{name_of(path)} has {lines} lines; split it by duty before {HARD_LIMIT}"


HISTORY = ROOT / "gan_core/store/migrations/versions"  # grows by one file for each change, and is read by its numbers


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES} - {HISTORY}), ids=name_of)
def test_a_folder_can_be_taken_in_at_a_glance(folder):
    modules = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")]
    assert len(modules) <= ROOM, f"{name_of(folder)} has {len(modules)} modules; give some of them a room of their own"


def test_the_file_tree_in_the_docs_is_the_disk():
    """Every Python file and folder of the packages has its line, and every line its file."""
    below_packages = [path for package in PACKAGES for path in [ROOT / package, *(ROOT / package).rglob("*")]]
    on_disk = {f"{name_of(path)}/" for path in below_packages if path.is_dir() and path.name != "__pycache__"}
    on_disk |= {name_of(path) for path in MODULES if path.name != "__init__.py"}
    on_disk = {name for name in on_disk if not name.partition("/migrations/")[2]}  # one line for all migrations
    drawn = set(drawn_tree())
    missing, gone = sorted(on_disk - drawn), sorted(name for name in drawn if not (ROOT / name).exists())
    assert not missing, f"the tree in docs/architecture.md lacks {missing}"
    assert not gone, f"the tree in docs/architecture.md shows what is not there: {gone}"


def drawn_tree() -> Iterator[str]:
    """Paths of the tree in docs/architecture.md; folders end in a slash."""
    tree = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```text\n.\n", 1)[1].split("```", 1)[0]
    )
    folders: list[str] = []
    for line in tree.splitlines():
        branch, _, rest = line.partition("── ")
        name, _, phrase = rest.partition(" ")
        assert phrase.strip(), f"{name} has no phrase in the tree of docs/architecture.md"
        folders[len(branch) // 4 :] = [name]
        yield "".join(folders)


def test_no_module_of_flows_or_tasks_is_called_like_a_foreign_one():
    """Prefect may put a flow's folder on sys.path: a module called `queue` there would replace the standard library's."""
    foreign = set(sys.stdlib_module_names) | set(packages_distributions()) | set(PACKAGES)
    for package in ("flows", "tasks"):
        taken = {path.stem for path in (ROOT / package).glob("*.py") if path.stem != "__init__"} & foreign
        assert not taken, f"{package}/ has modules with names that others own: {sorted(taken)}"


def test_no_test_folder_can_be_taken_for_a_package():
    """A `tests/flows`, or an `__init__.py`, makes `import flows` find the tests."""
    folders = [path for path in (ROOT / "tests").rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert not [name_of(path) for path in folders if path.name in PACKAGES]
    assert not [name_of(path) for path in (ROOT / "tests").rglob("__init__.py")]


@pytest.mark.slow
def test_flows_and_tasks_import_no_torch():
    """`prefect deploy` imports them, and a worker asks for their parameters: it must not cost seconds."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in MODULES
        if path.parts[-2] in ("flows", "tasks")
    ]
    modules = [name for name in modules if not name.endswith("__init__")]
    assert loaded_by(modules, ("torch",)) == {}


def test_the_command_imports_neither_torch_nor_prefect():
    """`classgan --help` answers at once."""
    assert loaded_by(["deployments.cli"], ("torch", "prefect")) == {}


def loaded_by(modules: list[str], heavy: tuple[str, ...]) -> dict[str, str]:
    """Which of the heavy packages come along when a fresh interpreter imports these; with the module that brought it."""
    script = (
        "import importlib, json, sys\n"
        "found = {}\n"
        f"for module in {modules!r}:\n"
        "    importlib.import_module(module)\n"
        f"    for heavy in {heavy!r}:\n"
        "        if heavy in sys.modules:\n"
        "            found.setdefault(heavy, module)\n"
        "sys.stdout.write(repr(found))\n"
    )
    environment = {**os.environ, "PREFECT_LOGGING_LEVEL": "ERROR"}
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return ast.literal_eval(result.stdout)


def test_only_gradients_takes_gradients():
    """The GAN's gradients come from one file; see GRADIENT_TAKERS for the other one and its reason."""
    takers = set(files_that_name("torch.autograd"))
    for path in MODULES:
        calls = {ast.unparse(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)}
        if any(call.endswith(".backward") for call in calls):
            takers.add(name_of(path))
    assert takers == set(GRADIENT_TAKERS)


def test_nothing_is_ever_unpickled():
    """A payload is bytes with a known header. Whoever unpickles runs what a stranger wrote."""
    doors = ("pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "torch.load", "torch.save")
    assert files_that_name(*doors, "allow_pickle", "numpy.load", "np.load") == {}


def test_the_environment_is_read_in_one_place():
    """See ENVIRONMENT_READERS; a file that needs none any more leaves that list."""
    readers = files_that_name("os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv")
    assert set(readers) == set(ENVIRONMENT_READERS)
    declared = files_that_name("pydantic_settings")
    assert set(declared) == {"gan_core/settings.py"}


def test_text_files_are_opened_with_their_encoding_named():
    """Without one, Python takes the system's: on Windows before 3.15 a code page, in which a name or a dash becomes another
    character, or an error.
    """
    found = {
        name_of(path)
        for path in [*MODULES, *TOOLS]
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call) and opens_text_without_encoding(call)
    }
    assert found == set()


def opens_text_without_encoding(call: ast.Call) -> bool:
    """Whether this is `read_text`, `write_text`, or an `open` whose mode is written there and isn't binary."""
    words = [ast.literal_eval(word) for word in call.args if isinstance(word, ast.Constant)]
    words += [word.value.value for word in call.keywords if word.arg == "mode" and isinstance(word.value, ast.Constant)]
    if any(word.arg == "encoding" for word in call.keywords) or "utf-8" in words:
        return False
    match call.func:
        case ast.Attribute(attr="read_text" | "write_text"):
            return True
        case ast.Attribute(attr="open"):
            return any(isinstance(word, str) and re.fullmatch(r"[rwax][+t]*", word) for word in words)
        case ast.Name(id="open"):
            return not any(isinstance(word, str) and re.fullmatch(r"[rwaxb+]*b[rwaxb+]*", word) for word in words)
    return False
