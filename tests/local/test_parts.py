"""The parts of a class end and are started again, each by itself; the clock is the test's."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deployments.local import parts
from deployments.local.notes import Illness, Notes, identity, ill_parts
from deployments.local.parts import ATTEMPTS, LONGEST_PAUSE, WELL, Part
from deployments.local.stack import LocalStack
from gan_core.errors import StackError


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(parts, "monotonic", clock)
    return clock


def dead() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process


def part(name: str = "worker-ada", *, is_needed: bool = False, launch=dead) -> Part:
    made = Part(name, launch, Path("logs") / f"{name}.log", is_needed=is_needed)
    made.start()
    return made


def pauses(ends: Part, clock: Clock, count: int) -> list[float]:
    """Seconds from each end to the next start."""
    found = []
    for _ in range(count):
        assert "ended" in ends.look()
        began, before = clock.now, ends.process
        while ends.process is before:
            clock.now += 0.5
            ends.look()
        found.append(clock.now - began)
    return found


def test_a_part_that_was_well_is_started_again_at_once_and_without_end(clock):
    """Killed from outside, ten times within three minutes: three deaths within one ended the whole class."""
    for needed in (False, True):
        ends = part(is_needed=needed)
        for _ in range(10):
            clock.now += WELL + 1
            before = ends.process
            assert "ended" in ends.look()
            ends.look()
            assert ends.process is not before


def test_one_that_ends_as_soon_as_it_is_started_gets_ever_longer_pauses(clock):
    assert pauses(part(), clock, 9) == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_what_the_class_needs_and_never_starts_ends_it_and_nothing_else_does(clock):
    pauses(part(), clock, 2 * ATTEMPTS)  # a worker's never ends the class
    ends = part("instructor", is_needed=True)
    pauses(ends, clock, ATTEMPTS - 1)
    with pytest.raises(
        StackError, match=r"instructor does not start: it has ended 3 times at once\. .*instructor\.log says"
    ):
        ends.look()
    once_well = part("instructor", is_needed=True)
    clock.now += WELL + 1
    assert len(pauses(once_well, clock, 2 * ATTEMPTS)) == 2 * ATTEMPTS


def test_a_start_that_fails_is_one_more_end(clock, tmp_path):
    """The machine has no memory, or PostgreSQL's old processes still hold its folder."""
    broken = [StackError("Another PostgreSQL already works in it."), OSError(12, "Cannot allocate memory")]

    def launch() -> subprocess.Popen[bytes]:
        if broken:
            raise broken.pop(0)
        return dead()

    ends = Part("postgres", launch, tmp_path / "postgres.log", process=dead(), was_well=True)
    said = []
    while len(said) < 4:
        clock.now += 0.5
        said += filter(None, [ends.look()])
    assert said[0].startswith("postgres ended at ")
    assert "it has ended 2 times" in said[1]
    assert "Another PostgreSQL" in said[1]
    assert "Cannot allocate memory" in said[2]
    assert "it has ended 4 times, and is started each time. Its log: " in said[3]


def test_an_ill_part_is_named_with_its_log_until_it_is_well_again(clock, tmp_path):
    """In `stack.json`, where other commands and the class page read it."""
    stack = LocalStack(tmp_path / "home", tmp_path / "outputs")
    stack._make_folders()
    try:
        first = stack.spawn("worker-ada", [sys.executable, "-S", "-c", "import threading; threading.Event().wait()"])
        assert stack.look_after() == ill_parts(stack.home) == []
        for _ in range(2):
            stack.children["worker-ada"].kill()
            stack.children["worker-ada"].wait()
            (said,) = stack.look_after()
            clock.now += 2.5
            stack.look_after()
        assert stack.children["worker-ada"] is not first
        (illness,) = ill_parts(stack.home)
        assert illness.sentence() == said
        assert re.fullmatch(
            rf"worker-ada is ill since [\d:]+: it has ended 2 times, .* Its log: {stack.logs}/worker-ada.log", said
        )
        clock.now += WELL
        assert stack.look_after() == ["worker-ada is well again."]
        assert ill_parts(stack.home) == []
    finally:
        stack.stop()


def test_a_class_that_was_killed_has_no_ill_parts(tmp_path):
    illness = Illness(part="instructor", since=datetime.now(UTC), ends=3, log="instructor.log")
    ended = dead()
    for owner, expected in ((identity(os.getpid()), [illness]), ((ended.pid, 0.0), []), (None, [])):
        Notes(owner=owner, ill=[illness]).write(tmp_path)
        assert ill_parts(tmp_path) == expected
