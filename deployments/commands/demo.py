"""`make demo` and `make up`: a whole class on this machine, watched live."""

import os
import re
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType

from psycopg import Connection
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deployments.commands.controls import reaching
from deployments.commands.reports import open_with_bar
from deployments.commands.watch import worker_table
from deployments.door import INSTRUCTOR, Door
from deployments.local_stack import DRAIN_SECONDS, LocalStack
from deployments.prefect_settings import PREFECT
from deployments.processes import endings
from gan_core.errors import StackError, TrainingError
from gan_core.plan import Plan
from gan_core.settings import settings
from gan_core.store import ledger, trainings
from gan_core.store.engine import connect
from gan_core.store.migrate import add_student
from gan_core.units import TrainingState

console = Console()

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
PLAIN_EVERY = 5.0  # seconds between lines where there is no terminal to draw on, and between questions to Prefect


def run_demo(workers: int, plan: Plan) -> None:
    """Start the class, train, show, stop. Ctrl-C stops everything at any moment."""
    started = time.monotonic()
    open_with_bar(plan, settings().cache)  # before anything is started: data that isn't there is the likeliest mistake
    with _terminated_as_interrupt(), _class_of(workers) as stack, connect(stack.postgres.url()) as connection:
        taken = {row.name for row in trainings.every(connection)}
        name = next(n for n in (f"demo-{i}" for i in range(1, 10_000)) if n not in taken)
        run = stack.start_training(name, plan.model_dump(mode="json"))
        console.print(f"Training [bold]{name}[/bold]. The Prefect UI shows it too: [link]{stack.ui}[/link]")
        _watch(stack, connection, name, plan, run)
        _summarise(connection, name, plan, started)
        _await_completion(stack, run)
    console.print("[green]Done.[/green]")


def stay_up(workers: int | None) -> None:
    """Start the class and wait for Ctrl-C."""
    door = Door.load(settings().home)
    if door is not None and workers:
        raise StackError(
            "In a class that `classgan init` made, workers come by invite: classgan students add NAME, then classgan join there. "
            "Leave --workers out."
        )
    with _terminated_as_interrupt(), _class_of(3 if workers is None and door is None else workers or 0, door) as stack:
        if door is None:
            join = f"{Path(sys.argv[0])} worker YOUR_NAME   (in another terminal, in this folder)"
            login = []
        else:
            join = "classgan students add NAME   (prints the invite for their machine)"
            login = [f"its login         {INSTRUCTOR}:{door.instructor_secret}"]
        lines = [
            f"Prefect UI        {stack.ui}",
            *login,
            f"start a training  {stack.ui}/deployments  → train → Run → Custom run",
            f"join a worker     {join}",
            f"look              {Path(sys.argv[0])} status",
            f"logs              {stack.logs}",
            "stop              Ctrl-C",
        ]
        console.rule("The class is up")
        console.print(*lines, sep="\n", soft_wrap=True, highlight=False)
        try:
            while True:
                _look_after(stack)
                time.sleep(REFRESH)
        except KeyboardInterrupt:
            return


def join_here(name: str) -> None:
    """Run one more student worker against the class on this machine, in this terminal."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) or name == INSTRUCTOR:
        raise StackError(
            f"{name!r} can't be a worker's name: use up to 31 small letters, digits and underscores, a letter first; "
            f"{INSTRUCTOR!r} is taken."
        )
    stack = LocalStack(settings().home, settings().outputs).attach()
    if stack.door is not None:
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
def _class_of(workers: int, door: Door | None = None) -> Generator[LocalStack]:
    with console.status("starting") as status:

        def say(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(text)

        stack = LocalStack(settings().home, settings().outputs, NAMES[:workers], say, door)
        try:
            stack.start()
        except BaseException:
            if stack.children:
                say("stopping")
            stack.stop()
            raise
    from tasks.keep_queue import kept_queue  # brings Prefect along

    try:
        with kept_queue(stack.database, lambda: reaching(stack)):
            yield stack
    finally:
        with suppress(OSError):  # the terminal may be gone: that is why we stop
            console.print(f"Stopping; workers finish their unit first, up to {DRAIN_SECONDS} s …")
        stack.stop()


def _look_after(stack: LocalStack) -> None:
    for name in stack.look_after():
        console.print(
            f"[yellow]{name} ended by itself and was started again.[/yellow] Its log is in {stack.logs}.",
            soft_wrap=True,
        )


@contextmanager
def _terminated_as_interrupt() -> Generator[None]:
    """A polite kill, or a terminal that is closed, ends the class as orderly as Ctrl-C does; and Ctrl-C works in a
    script's background job too. After `nohup` a closed terminal means nothing.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in endings()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(stack: LocalStack, connection: Connection, name: str, plan: Plan, run: str) -> None:
    """Show the training until it has ended.

    Raises:
        TrainingError: it failed; says why and where to look.
    """
    said = asked = 0.0
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            _look_after(stack)
            view = ledger.overview(connection, name)
            workers = ledger.workers(connection, name)
            if view is not None:
                if console.is_terminal:
                    live.update(_picture(view, workers, plan))
                elif time.monotonic() - said > PLAIN_EVERY:
                    said = time.monotonic()
                    console.print(_line(view, workers, plan), soft_wrap=True, markup=False)
                if view.state is TrainingState.SUCCEEDED:
                    return
                if view.state in (TrainingState.FAILED, TrainingState.CANCELLED):
                    raise TrainingError(f"Training {name!r} ended as {view.state}: {view.message}. Logs: {stack.logs}")
            if time.monotonic() - asked > PLAIN_EVERY:
                asked = time.monotonic()
                state, message = stack.run_state(run)
                if state in ("Failed", "Crashed", "Cancelled"):
                    raise TrainingError(f"The run of {name!r} ended as {state}: {message}. Logs: {stack.logs}")
            time.sleep(REFRESH)


def _await_completion(stack: LocalStack, run: str) -> None:
    """The last samples are still being shown in Prefect when the training itself is done."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and stack.run_state(run)[0] in ("Running", "Pending", "Scheduled", "Submitting"):
        time.sleep(REFRESH)


def _of(plan: Plan) -> str:
    """How many iterations there will be, if the plan says so."""
    return "" if plan.epochs else f" of {plan.iterations}"


def _left(view: ledger.Overview, plan: Plan) -> str:
    done = plan.progress(view.iteration, view.position, view.data_images or 1)
    if not done or not view.images_per_second:
        return "estimating"
    return str(timedelta(seconds=round(view.images / done * (1 - done) / view.images_per_second)))


def _line(view: ledger.Overview, workers: Sequence[ledger.WorkerRow], plan: Plan) -> str:
    losses = f" · loss G {view.last.g_loss:.2f} D {view.last.d_loss:.2f}" if view.last else ""
    who = ", ".join(f"{w.name} {w.units}" for w in workers)
    message = f" · {view.message}" if view.message else ""
    return (
        f"{view.state} · iteration {view.iteration}{_of(plan)}{losses} · {view.images_per_second:,.0f} images/s"
        f" · left {_left(view, plan)} · units: {who or 'none yet'}{message}"
    )


def _picture(view: ledger.Overview, workers: list[ledger.WorkerRow], plan: Plan) -> Group:
    facts = Table.grid(padding=(0, 2))
    facts.add_row(
        "iteration",
        f"{view.iteration}{_of(plan)}",
        ProgressBar(total=1, completed=plan.progress(view.iteration, view.position, view.data_images or 1), width=40),
    )
    if view.last:
        facts.add_row("losses", f"G {view.last.g_loss:.3f}", f"D {view.last.d_loss:.3f}")
        facts.add_row(
            "D is right on", f"real {view.last.d_real_accuracy:.0%}", f"generated {view.last.d_fake_accuracy:.0%}"
        )
    facts.add_row("speed", f"{view.images_per_second:,.0f} images/s", f"about {_left(view, plan)} left")
    return Group(
        Panel(facts, title=f"{view.name}: {view.state}", expand=False),
        worker_table(workers),
        Text(view.message, style="yellow"),
    )


def _summarise(connection: Connection, name: str, plan: Plan, started: float) -> None:
    """The quality figure, the table, the files."""
    from gan_core import generators
    from gan_core.quality import distance_of, train_yardstick

    row = trainings.get(connection, name)
    folder = settings().outputs.resolve() / name
    table = Table(show_header=False, title=name)
    with console.status("measuring quality"):
        deadline = time.monotonic() + 30
        path = folder / "generator.safetensors"
        while not (path.exists() and generators.load(path).iteration == row.iteration) and time.monotonic() < deadline:
            time.sleep(REFRESH)
        generator = generators.load(path)
        images = open_with_bar(plan, settings().cache)
        if images.labels is not None:
            distance = distance_of(plan, generator.average, train_yardstick(images))
            table.add_row(
                "Frechet distance by a classifier",
                f"{distance:.1f}  (1.6 is perfect, about 10 well readable, 1,800 noise)",
            )
    table.add_row("iterations", f"{row.iteration} of {row.images / max(1, row.iteration):,.0f} images")
    table.add_row("images seen", f"{row.images:,}")
    table.add_row(
        "who computed", ", ".join(f"{w.name} {w.units} units" for w in ledger.workers(connection, name) if w.units)
    )
    table.add_row("time in all", str(timedelta(seconds=round(time.monotonic() - started))))
    console.print(table)
    console.print(f"final samples  {folder / 'samples' / f'iteration_{row.iteration:06d}.png'}", soft_wrap=True)
    console.print(f"timeline       {folder / 'timeline.gif'}", soft_wrap=True)
    console.print(f"generator      {path}   (draw more: classgan generate {name})", soft_wrap=True)
