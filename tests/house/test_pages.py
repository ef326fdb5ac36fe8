"""What the pages tell their readers to type works: each command is executed by a test, or the page says why not."""

import re
from itertools import takewhile
from pathlib import Path

import pytest
import typer
from pages import PAGES, Line, commands, lines
from systems import link

from deployments.cli import app
from gan_core.settings import settings

ALONE = ("plan", "init", "students", "train-local", "generate")  # executed here, in this order
IN_A_CLASS = (
    "status",
    "events",
    "pause",
    "resume",
    "change",
    "cancel",
    "export-grades",
    "worker",
)  # tests/acceptance/test_commands_in_a_class.py

# What stays until somebody stops it, or is the whole suite; and the tests that start the same.
ELSEWHERE = {
    "classgan join": "tests/acceptance/test_joining.py",
    "classgan up": "tests/acceptance/test_joining.py",  # the class that `up` keeps up, without the waiting
    "make up": "tests/acceptance/test_whole_class.py",  # the same, on one machine
    "make dashboard": "tests/dashboard/test_dashboard.py",
    "classgan monitor": "tests/cli/test_terminal.py",
    "classgan alarm": "tests/acceptance/test_in_prefect.py",
    "classgan data": "tests/cli/test_data_commands.py",
    "classgan push": "tests/exports/test_hub.py",
    "classgan runs": "tests/runs/test_runs.py",
    "classgan models": "tests/runs/test_runs.py",
    "classgan submit": "tests/cli/test_queue_commands.py",
    "make demo": "tests/acceptance/test_demo.py",
    "make test": "tests/house/test_pages.py",
    "make gpu-check": "tests/house/test_gpu_check.py",
    "curl --cacert": "tests/server/service/test_trainings.py",
}
SHELL = ("|", ">", ">>", "&&")  # where a call ends
SMALL = ["--set", "generator_width=4", "--set", "discriminator_width=4", "--set", "batch_size=8"]
SMALL += ["--set", "images_per_unit=16", "--set", "quorum=16", "--set", "iterations=2"]


@pytest.fixture
def folder(tmp_path, monkeypatch, cache) -> Path:
    """An empty folder to work in, with a class list, and the digits resized already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLASSGAN_HOME", str(tmp_path / ".classgan"))
    monkeypatch.setenv("CLASSGAN_OUTPUTS", str(tmp_path / "outputs"))
    settings.cache_clear()
    (tmp_path / ".classgan").mkdir()
    link(tmp_path / ".classgan" / "cache", cache)
    (tmp_path / "rubric.yaml").write_text("points: 50\n", encoding="utf-8")
    (tmp_path / "plan.yaml").write_text("latent_dim: 8\n", encoding="utf-8")
    (tmp_path / "roster.csv").write_text("login,name,email\ngrace,Grace Hopper,grace@example.edu\n", encoding="utf-8")
    yield tmp_path
    settings.cache_clear()


@pytest.mark.parametrize("line", lines(), ids=str)
def test_a_command_is_executed_by_a_test_or_its_page_says_why_not(line: Line):
    if line.reason or line.words in [(".", ".venv/bin/activate"), (".", "class/bin/activate")]:
        return
    start = " ".join(line.words[:2])
    assert start in ELSEWHERE or (line.words[0] == "classgan" and line.words[1] in (*ALONE, *IN_A_CLASS)), (
        f"{line}: execute it in a test, or write <!-- not executed: the reason --> above its block"
    )


def typed() -> list[tuple[str, ...]]:
    """Every whole call of `classgan`, in blocks and in sentences."""
    calls = {line.words for line in lines() if line.words[0] == "classgan"}
    for page in PAGES:
        text = re.sub(
            r"^```.*?^```|^[^\n]*\(in work[^\n]*$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        calls |= {tuple(call.split()) for call in re.findall(r"`(classgan [^`\n…|]+)`", text)}
    return sorted(calls)


def parse(words: tuple[str, ...]) -> None:
    """As the command line would, without calling anything. Raises a usage error for what it doesn't know."""
    words = tuple(takewhile(lambda word: word not in SHELL, words))
    command = typer.main.get_command(app)
    context, rest = command.make_context("classgan", [], resilient_parsing=True), list(words)
    while rest and hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, f"classgan has no command {words[0]}"
        context = command.make_context(
            name, list(rest), context, resilient_parsing=hasattr(command, "commands") or not rest
        )


@pytest.mark.parametrize("words", typed(), ids=" ".join)
def test_every_call_of_classgan_in_the_pages_is_understood(words, folder):
    """Commands and options exist, and their values are possible. A command alone may lack its arguments: it is only named."""
    parse(words[1:])


def test_an_option_that_does_not_exist_is_noticed():
    for wrong in (["status", "--nonsense"], ["generate", "x", "--count", "0"], ["nonsense"]):
        with pytest.raises(Exception, match=r"No such|greater than or equal to 1|no command nonsense"):
            parse(tuple(wrong))


@pytest.mark.slow
def test_what_needs_no_class_that_is_up(folder, capsys):
    """Trainings are made so small that they end at once."""
    for line in sorted(commands(*ALONE), key=lambda line: ALONE.index(line.words[1])):
        words = list(line.words[1:])
        if words[0] == "generate":
            if words[1] == "NAME" or words[1].startswith("model:"):
                continue  # in a class, and in tests/runs/test_runs.py
            words[1] = words[1].replace("NAME", "mine")
        app(words + SMALL * (words[0] == "train-local"), standalone_mode=False)
    said = capsys.readouterr().out
    assert "classgan join classgan2." in said
    assert (folder / "invites.csv").exists()
    assert (folder / "outputs" / "mine" / "generator.safetensors").exists()
    assert (folder / "sixteen.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "sixty-four.png").exists()
