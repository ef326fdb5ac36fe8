"""Our own modules as child processes: `python -m bench.NAME`, one JSON line an answer, ended by closing their stdin."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60.0  # seconds a child gets to finish the unit at hand


class Child:
    """A running child process."""

    def __init__(self, module: str, *arguments: object) -> None:
        self.module = module
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"bench.{module}", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def answer(self) -> Any:
        """The child's next line. Raises RuntimeError if it ended instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"bench.{self.module} ended by itself with exit status {self.process.wait()}")
        return json.loads(line)

    def ask(self, line: str) -> Any:
        self.tell(line)
        return self.answer()

    def stop(self) -> None:
        """Ask it to end, and don't wait."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> None:
        self.stop()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def child(module: str, *arguments: object) -> Generator[Child]:
    """A child process that lives as long as this block."""
    process = Child(module, *arguments)
    try:
        yield process
    finally:
        process.end()


def say(answer: object) -> None:
    """In a child: answer the parent."""
    print(json.dumps(answer), flush=True)


def when_stdin_closes(call: Callable[[], None]) -> None:
    """In a child: call this once the parent closes our stdin, or dies."""

    def watch() -> None:
        sys.stdin.read()
        call()

    threading.Thread(target=watch, name="stdin", daemon=True).start()
