"""What the pages tell their readers to type."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

BLOCK = re.compile(
    r"(?:^<!-- not executed: (?P<reason>[^>]+) -->\n)?^```sh\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Line:
    """One line of a block of shell commands."""

    page: str
    words: tuple[str, ...]
    reason: str | None  # why no test executes it

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def lines() -> list[Line]:
    """Every line of every block, without comments."""
    return list(_lines())


def _lines() -> Iterator[Line]:
    for path in PAGES:
        for block in BLOCK.finditer(path.read_text(encoding="utf-8")):
            for line in block["code"].splitlines():
                if words := tuple(shlex.split(line, comments=True)):
                    yield Line(path.relative_to(ROOT).as_posix(), words, block["reason"])


def commands(*names: str) -> list[Line]:
    """The lines that call these commands of `classgan` and are meant to be executed."""
    return [line for line in lines() if line.words[0] == "classgan" and line.words[1] in names and not line.reason]
