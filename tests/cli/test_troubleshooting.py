"""Every message of ours leads to a section that explains it, and every section belongs to a message."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.student.doctor import Doctor, Finding, Outcome
from deployments.student.invites import Invite
from deployments.troubleshooting import sections
from gan_core.errors import GanError, PlanError, StoreUnreachable


def below(kind: type[GanError]) -> Iterator[type[GanError]]:
    for child in kind.__subclasses__():
        yield child
        yield from below(child)


def test_errors_and_sections_are_the_same():
    """The errors, what the system says of files, and the doctor's checks: each has its section, and no section is left over."""
    doctor = Doctor(Invite.model_construct(**dict.fromkeys(Invite.model_fields, "1")), Path("class.pem"))
    checks = {Finding(name, Outcome.BAD, "").anchor() for name, _ in doctor.checks()}
    assert set(sections()) == {error.anchor() for error in below(GanError)} | {"files"} | checks


def test_an_anchor_is_the_errors_name():
    assert [PlanError.anchor(), StoreUnreachable.anchor()] == ["plan", "store-unreachable"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["generate", "nonsense"], "data"), (["train-local", "--out", "/proc/nowhere"], "files")],
    ids=["ours", "the system's"],
)
def test_the_last_line_of_a_message_is_a_command_that_works(arguments, word, tmp_path):
    def classgan(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "deployments.cli", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    last = classgan(*arguments).stderr.splitlines()[-1]
    assert last == f"More: classgan help {word}   (docs/troubleshooting.md#{word})"
    assert word.capitalize() in classgan("help", word).stdout
    assert word in classgan("help").stdout.splitlines()
