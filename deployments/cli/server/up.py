"""`classgan up` and `worker`: the class on this machine, until Ctrl-C."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from deployments.cli.output import console, keep_private
from deployments.cli.trainings.control import reaching
from deployments.prefect_settings import keep_to
from gan_core.errors import StackError

if TYPE_CHECKING:
    from deployments.local.stack import LocalStack
    from deployments.server.class_file import ClassFile

commands = typer.Typer()
NAMES = (
    "ada",
    "grace",
    "alan",
    "edsger",
    "barbara",
    "donald",
    "frances",
    "john",
    "radia",
    "tim",
    "hedy",
    "linus",
    "sophie",
    "ken",
    "katherine",
    "dennis",
)
REFRESH = 1.0  # seconds between looks


@commands.command()
def up(
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=16,
            help="Student workers to start on this machine. Default: 3; none in a class that `classgan init` made.",
        ),
    ] = None,
) -> None:
    """Start the class and keep it running until Ctrl-C. Start trainings in the Prefect UI."""
    from deployments.server.class_file import INSTRUCTOR, ClassFile
    from gan_core.settings import settings

    class_file = ClassFile.load(settings().home)
    if class_file is not None and workers:
        raise StackError(
            "In a class that `classgan init` made, workers come by invite: classgan students add NAME, then classgan join there. "
            "Leave --workers out."
        )
    with (
        terminated_as_interrupt(),
        class_of(3 if workers is None and class_file is None else workers or 0, class_file) as stack,
    ):
        if class_file is None:
            join = f"{typed('worker YOUR_NAME')}   (in another terminal, in this folder)"
            login = []
        else:
            join = f"{typed('students add NAME')}   (prints the invite for their machine)"
            keep_private()
            login = [f"its login         {INSTRUCTOR}:{class_file.instructor_secret}"]
        lines = [
            f"Prefect UI        {stack.ui}",
            *login,
            f"start a training  {stack.ui}/deployments  → train → Run → Custom run",
            f"join a worker     {join}",
            f"look              {typed('status')}",
            f"logs              {stack.logs}",
            "stop              Ctrl-C",
        ]
        console.rule("The class is up")
        console.print(*lines, sep="\n", soft_wrap=True, highlight=False)
        try:
            while True:
                look_after(stack)
                time.sleep(REFRESH)
        except KeyboardInterrupt:
            return


def typed(words: str) -> str:
    """A command of ours as it is typed in another terminal, which may know nothing of this one's CLASSGAN_HOME."""
    from gan_core.settings import Settings, settings

    home = settings().home.resolve()
    is_usual = home == Settings.model_fields["home"].default.resolve()
    return f"{'' if is_usual else f'CLASSGAN_HOME={shlex.quote(str(home))} '}{Path(sys.argv[0])} {words}"


@commands.command()
def worker(name: Annotated[str, typer.Argument(help="Your name: small letters, digits and underscores.")]) -> None:
    """Add one worker to the class that runs on this machine (`classgan up`). Ctrl-C finishes its unit, then stops."""
    from deployments.local.stack import LocalStack
    from deployments.prefect_settings import PREFECT
    from deployments.server.class_file import INSTRUCTOR
    from gan_core.settings import settings
    from gan_core.store.engine import connect
    from gan_core.store.migrate import add_student

    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) or name == INSTRUCTOR:
        raise StackError(
            f"{name!r} can't be a worker's name: use up to 31 small letters, digits and underscores, a letter first; "
            f"{INSTRUCTOR!r} is taken."
        )
    stack = LocalStack(settings().home, settings().outputs).attach()
    if stack.class_file is not None:
        raise StackError(
            f"This class has logins. Let a worker in with: classgan students add {name}, then classgan join INVITE."
        )
    with connect(stack.postgres.url()) as connection:
        add_student(connection, name)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background job would ignore Ctrl-C
    command = [*PREFECT, "worker", "start", "--pool", "students", "--name", name]
    os.chdir(stack.home)
    os.execve(
        command[0], command, stack.environment(name)
    )  # this process becomes the worker: nothing in between to die


@contextmanager
def class_of(workers: int, class_file: ClassFile | None = None) -> Generator[LocalStack]:
    from deployments.local.processes import is_gone
    from deployments.local.stack import LocalStack
    from gan_core.settings import settings

    with console.status("starting") as status:

        def say(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(text)

        stack = LocalStack(settings().home, settings().outputs, NAMES[:workers], say, class_file)
        try:
            stack.start()
        except BaseException:
            if stack.parts:
                say("stopping")
            stack.stop()
            raise
    if stack.remark:
        console.print(stack.remark, soft_wrap=True)
    keep_to(stack.home)
    from tasks.background.keep_queue import kept_queue  # brings Prefect along

    try:
        with kept_queue(stack.database, lambda: reaching(stack), is_gone):
            try:
                yield stack
            finally:
                with suppress(OSError):  # the terminal may be gone: that is why we stop
                    console.print(stopping(), soft_wrap=True)
    finally:
        stack.stop()


def stopping() -> str:
    from deployments.local.stack import DRAIN_SECONDS, PAUSE_SECONDS

    return (
        f"Stopping: coordinators end their iteration (up to {PAUSE_SECONDS} s), workers their unit (up to {DRAIN_SECONDS} s), "
        "then servers and PostgreSQL; half a minute at the very most. Ctrl-C again: at once."
    )


def look_after(stack: LocalStack) -> None:
    for told in stack.look_after():
        console.print(f"[yellow]{escape(told)}[/yellow]", soft_wrap=True)


@contextmanager
def terminated_as_interrupt() -> Generator[None]:
    """A polite kill, or a terminal that is closed, ends the class as orderly as Ctrl-C does; and Ctrl-C works in a
    script's background job too. After `nohup` a closed terminal means nothing.
    """
    from deployments.local.processes import endings

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in endings()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
