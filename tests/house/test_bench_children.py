"""A benchmark whose child process ends by itself ends, too, with a sentence: whatever it waits for, on every system."""

import subprocess
import sys
import threading

import pytest

from bench.children import ChildFell, children

PATIENCE = 60.0  # seconds: an interpreter starts


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child called `silent` reads until its stdin closes; every other name is none of our modules, and ends with status 1."""
    run = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda command, **options: real(run if command[-1] == "bench.silent" else command, **options),
    )


@pytest.mark.usefixtures("silent")
def test_a_child_that_ends_by_itself_ends_every_wait():
    with (
        pytest.raises(ChildFell, match=r"^bench\.gone ended by itself with exit status 1$"),
        children(("silent",)),
        children(("gone",)),
    ):
        threading.Event().wait(PATIENCE)


@pytest.mark.usefixtures("silent")
def test_on_windows_too_where_a_signal_would_end_this_process(monkeypatch):
    """The main thread waits for another child's answer, and nothing but that child's end can wake it."""
    monkeypatch.setattr(sys, "platform", "win32")
    with (
        pytest.raises(ChildFell, match=r"^bench\.gone ended by itself"),
        children(("silent",)) as (other,),
        children(("gone",)),
    ):
        other.answer()
