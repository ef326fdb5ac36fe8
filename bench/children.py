"""Our own modules as child processes: `python -m bench.NAME`, one JSON line an answer, ended by closing their stdin."""

import _thread
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60.0  # seconds a child gets to finish the unit at hand


class ChildFell(Exception):
    """A child process ended by itself."""


class Child:
    """A running child process."""

    living: ClassVar[set["Child"]] = set()  # of this process

    def __init__(self, module: str, *arguments: object) -> None:
        self.module, self.fell = module, ""  # how it ended, if nobody asked it to
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"bench.{module}", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its children
        )
        self._asked_to_end = False
        self.living.add(self)
        threading.Thread(target=self._guard, name="guard", daemon=True).start()

    def _guard(self) -> None:
        """End this benchmark when the child ends unasked: a class without its worker would wait for ever."""
        status = self.process.wait()
        self.living.discard(self)
        if not self._asked_to_end and status:
            self.fell = f"bench.{self.module} ended by itself with exit status {status}"
            print(self.fell, file=sys.stderr)
            _interrupt_main()
            for other in [*self.living]:  # where that wakes nobody, the end of what is waited for does
                other.kill()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def answer(self) -> Any:
        """The child's next line. Raises EOFError if it ended instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"bench.{self.module} ended without an answer")
        return json.loads(line)

    def ask(self, line: str) -> Any:
        self.tell(line)
        return self.answer()

    def stop(self) -> None:
        """Ask it to end, and don't wait."""
        assert self.process.stdin is not None
        self._asked_to_end = True
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> None:
        self.stop()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._asked_to_end = True
        self.process.kill()
        self.process.wait()


def _interrupt_main() -> None:
    """Ctrl-C for the main thread, wherever it waits. On Windows, where a signal would end this process at once, it comes when
    the thread's wait for a child is over.
    """
    main = threading.main_thread().ident
    if sys.platform == "win32" or main is None:
        _thread.interrupt_main()
    else:
        signal.pthread_kill(main, signal.SIGINT)


@contextmanager
def children(*calls: tuple[object, ...]) -> Generator[list[Child]]:
    """A child process for each (module, argument, ...), as long as this block lives.

    Raises:
        ChildFell: one of them ended by itself.
    """
    started: list[Child] = []
    try:
        try:
            for module, *arguments in calls:
                started.append(Child(str(module), *arguments))
            yield started
        except BaseException:
            for process in started:
                process.kill()
            raise
    except (KeyboardInterrupt, EOFError) as exc:
        if fell := next((process.fell for process in started if process.fell), ""):
            raise ChildFell(fell) from exc
        raise
    for process in started:
        process.stop()  # all of them finish what they are at, at the same time
    for process in started:
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
