"""`classgan submit`, `queue`, `priority`, `explain`, `workers`: the queue from the command line."""

from __future__ import annotations

import getpass
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from deployments.cli.options import JsonOption, PlanOption
from deployments.cli.output import console, print_json, say, show, worker_table
from deployments.cli.tables import Listing
from deployments.cli.trainings.plans import changes_from
from gan_core.errors import PlanError, TrainingError

if TYPE_CHECKING:
    from psycopg import Connection

    from gan_core.scheduler import foreign_submissions
    from gan_core.scheduler.survey import Rules


commands = typer.Typer()
order = typer.Typer(invoke_without_command=True, help="Show what runs and what waits, where it stands, and why.")
Name = Annotated[str, typer.Argument(help="The training's name.")]


@commands.command()
def submit(
    plan: Annotated[str, typer.Argument(help="A YAML or JSON file with a plan, or a preset: demo, dcgan, better.")],
    name: Annotated[str, typer.Option(help="The training's name. Default: the file's name.")] = "",
    priority: Annotated[int | None, typer.Option(help="The training with the highest number goes first.")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs that each worker must have.")] = None,
    memory: Annotated[int | None, typer.Option(help="Memory that each of those GPUs must have, in MB.")] = None,
    min_workers: Annotated[
        int | None,
        typer.Option(help="Least number of workers: the training gets all of them at the same time, or none."),
    ] = None,
    max_workers: Annotated[
        int | None, typer.Option(help="Most workers that the training may have. Default: no limit.")
    ] = None,
    changes: PlanOption = None,
    key: Annotated[
        str, typer.Option(help="Any text. A second submit with the same key makes no second training.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Put a training into the queue. It starts by itself when its turn comes and enough workers are online."""
    asked = {"priority": priority, "gpus": gpus, "memory_mb": memory, "min_workers": min_workers}
    submit_training(plan, name, changes or [], asked | {"max_workers": max_workers}, key, as_json)


@order.callback()
def show_queue(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show what runs and what waits: position, when it may start, and why it waits."""
    if context.invoked_subcommand is None:
        print_queue(as_json)


@order.command("move")
def move(
    name: Name,
    top: Annotated[bool, typer.Option("--top", help="Put it first.")] = False,
    after: Annotated[str, typer.Option(metavar="OTHER", help="Put it right after this training.")] = "",
) -> None:
    """Move a waiting training to another place in the queue. It gets the priority of that place."""
    from gan_core.scheduler.survey import move

    if top == bool(after):
        raise TrainingError("Say where: --top, or --after OTHER.")
    with _class() as (connection, rules):
        say(move(connection, name, after, rules))


@commands.command(context_settings={"ignore_unknown_options": True})  # -5 is a number, not an option
def priority(
    name: Name,
    number: Annotated[
        int, typer.Argument(min=-1_000, max=1_000, help="The training with the highest number goes first.")
    ],
) -> None:
    """Change a training's priority, also while it runs. Workers change trainings at the end of their units."""
    set_priority(name, number)


@commands.command()
def explain(name: Annotated[str, typer.Argument(help="A training or a worker.")], as_json: JsonOption = False) -> None:
    """Explain why a training waits and why its iterations last so long, or why a worker is placed on its training; with the
    placements of the last days.
    """
    from gan_core.coordinator.pace import why_so_long
    from gan_core.plan import checked_plan
    from gan_core.scheduler.outlook import cannot_ever, clock
    from gan_core.scheduler.survey import survey
    from gan_core.store.coordinator import trainings, unit_queue
    from gan_core.store.scheduler import placements

    with _class() as (connection, rules):
        seen, past = survey(connection, rules), placements.decisions(connection, name)
        training = trainings.find(connection, name)
        length = why_so_long(checked_plan(training.plan), unit_queue.pace(connection, training.id)) if training else ""
        known = any(m.name == name for m in seen.machines) or training or past
    if not known:
        raise TrainingError(
            f"There is neither a training nor a worker called {name!r}. `classgan queue` and `classgan workers` list them."
        )
    entry = next((entry for entry in seen.entries.values() if entry.wanted.name == name), None)
    reason = seen.reason(entry.wanted.id) if entry else ""
    never = cannot_ever(entry.wanted, seen.machines) if entry and not seen.waiting else ""
    if as_json:
        print_json({"name": name, "reason": reason, "never": never, "length": length, "placements": past})
        return
    if reason:
        say(f"[bold]{name}[/bold] {escape(reason)}.")
    if never and never != reason:
        say(f"{escape(never)}.")
    if length:
        say(f"{escape(length)}.")
    table = Listing("from", "to", "worker", "training", "why", folds=["from", "to", "worker", "why"], spare=["to"])
    for d in past:
        ended = clock(d.ended_at) if d.ended_at else "now"
        table.add(clock(d.decided_at), ended, f"{d.worker} ({d.student})", d.training, d.reason)
    if past:
        show(table)
    else:
        console.print("No worker was placed yet.")


@commands.command()
def workers(
    drain: Annotated[str, typer.Option(metavar="WORKER", help="Give this worker no new units.")] = "",
    undrain: Annotated[str, typer.Option(metavar="WORKER", help="Give this worker units again.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Show the workers: whether they are there, what they did, and their last message."""
    from gan_core.store.scheduler import placements
    from gan_core.store.viewers import ledger

    with _class() as (connection, _):
        for worker, by in ((drain, getpass.getuser()), (undrain, "")):
            if worker and not placements.drain(connection, worker, by):
                known = ", ".join(w.name for w in ledger.workers(connection)) or "none yet"
                raise TrainingError(f"There is no worker called {worker!r}. Workers here: {known}.")
        workers = ledger.workers(connection)
    if as_json:
        print_json(workers)
        return
    if drain:
        say(f"{drain} finishes what it has and gets nothing new. Again: classgan workers --undrain {drain}")
    show(worker_table(workers))


commands.add_typer(order, name="queue")


@contextmanager
def _class() -> Generator[tuple[Connection, Rules]]:
    from deployments.local.database import database_url
    from gan_core.scheduler.survey import Rules
    from gan_core.settings import settings
    from gan_core.store.engine import connect

    with database_url(live=True) as url, connect(url) as connection:
        yield connection, Rules.of(settings())


def submit_training(
    source: str, name: str, changes: Sequence[str], demand: dict[str, Any], key: str, as_json: bool
) -> None:
    """Take a plan, or another system's submission, into the queue; says where it stands."""
    from gan_core.scheduler.demand import checked_demand
    from gan_core.store.scheduler import submissions

    given = read_submission(source, name)
    asked = checked_demand(given.demand | {k: v for k, v in demand.items() if v is not None})
    plan = given.plan.changed(**changes_from(changes))
    asked.require_possible(plan)
    with _class() as (connection, rules):
        values = plan.model_dump(mode="json"), asked.model_dump()
        found, is_new = submissions.submit(connection, given.name, *values, owner=getpass.getuser(), key=key)
        _tell(connection, rules, found, is_new, as_json)


def _tell(connection: Connection, rules: Rules, name: str, is_new: bool, as_json: bool) -> None:
    from gan_core.scheduler.survey import survey
    from gan_core.store.coordinator import trainings

    row = trainings.get(connection, name)
    seen = survey(connection, rules)
    reason = seen.reason(row.id) if row.id in seen.entries else row.message
    if as_json:
        answer = {"name": name, "id": row.id, "state": row.state, "is_new": is_new, "reason": reason}
        print(json.dumps(answer))
        return
    state = f"is {'queued' if is_new else row.state}{'' if is_new else ' already: this key was used for it'}"
    say(f"[bold]{name}[/bold] {state}. {escape(reason[:1].upper() + reason[1:])}.")


def read_submission(source: str, name: str) -> foreign_submissions.Submission:
    """A preset's name, or a YAML or JSON file: a plan, {name, plan, demand}, or the shape of another system.

    Raises:
        PlanError: it can't be read or trained; says which field, and what is possible.
    """
    from gan_core.presets import PRESETS, preset
    from gan_core.scheduler import foreign_submissions

    if name and name != (possible := foreign_submissions.training_name(name)):
        raise PlanError(
            f"name is {name!r}: a training's name has at most 50 small letters, digits and dashes, for example {possible}."
        )
    if source in PRESETS:
        return foreign_submissions.Submission(
            name=foreign_submissions.training_name(name or source), plan=preset(source)
        )
    return foreign_submissions.from_values(_read(Path(source)), name, otherwise=Path(source).stem)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    from gan_core.presets import PRESETS

    wanted = (
        f"Name a YAML or JSON file with KEY: VALUE lines, such as iterations: 50, or a preset: {', '.join(PRESETS)}."
    )
    if not path.exists():
        raise PlanError(f"{path} is neither a file nor a preset. {wanted}")
    if path.is_dir():
        raise PlanError(f"{path} is a folder, not a plan. {wanted}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except UnicodeDecodeError as exc:
        raise PlanError(f"{path} is no text, so it is not a plan. {wanted}") from exc
    except yaml.YAMLError as exc:
        raise PlanError(f"{path} is neither YAML nor JSON: {str(exc).splitlines()[0]}. {wanted}") from exc
    if not isinstance(values, dict):
        raise PlanError(f"{path} holds {'nothing' if values is None else 'no KEY: VALUE lines'}. {wanted}")
    return values


def print_queue(as_json: bool) -> None:
    """Every training that runs or waits, in its order."""
    from gan_core.scheduler.survey import queue_rows, survey

    with _class() as (connection, rules):
        rows = queue_rows(survey(connection, rules))
    if as_json:
        print(json.dumps(rows))
        return
    if not rows:
        console.print("Nothing runs and nothing waits. Submit one: classgan submit PLAN.")
        return
    columns = ("place", "training", "state", "owner", "priority", "start", "in words")
    table = Listing(*columns, folds=["start", "in words"], spare=["priority", "owner"], title="training")
    for r in rows:
        position = "" if r["position"] is None else str(r["position"])
        words = str(r["reason"])
        table.add(position, r["name"], r["state"], r["owner"], str(r["priority"]), r["estimate"], words)
    show(table)


def set_priority(name: str, priority: int) -> None:
    from gan_core.scheduler.survey import survey
    from gan_core.store.coordinator import trainings
    from gan_core.store.scheduler import submissions

    with _class() as (connection, rules):
        row = trainings.get(connection, name)
        submissions.set_priority(connection, row.id, priority)
        seen = survey(connection, rules)
        reason = seen.reason(row.id) if row.id in seen.entries else f"is {row.state}"
        say(f"{name} has priority {priority} now: {escape(reason)}.")
