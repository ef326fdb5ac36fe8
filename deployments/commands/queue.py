"""`classgan submit`, `queue`, `priority`, `explain`, `workers`: the queue from the command line."""

import getpass
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg import Connection
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deployments.commands.plans import changes_from
from deployments.commands.reports import database_url
from deployments.commands.watch import worker_table
from gan_core import foreign
from gan_core.demand import checked_demand
from gan_core.errors import PlanError, TrainingError
from gan_core.plan import PRESETS, preset
from gan_core.policies.queueing import cannot_ever, clock
from gan_core.scheduling import Rules, Survey, move, survey
from gan_core.settings import settings
from gan_core.store import ledger, placements, submissions, trainings
from gan_core.store.engine import connect

console = Console()


@contextmanager
def _class() -> Generator[tuple[Connection, Rules]]:
    with database_url() as url, connect(url) as connection:
        yield connection, Rules.of(settings())


def submit_training(
    source: str, name: str, changes: Sequence[str], demand: dict[str, Any], key: str, as_json: bool
) -> None:
    """Take a plan, or another system's submission, into the queue; says where it stands."""
    given = read_submission(source, name)
    asked = checked_demand(given.demand | {k: v for k, v in demand.items() if v is not None})
    plan = given.plan.changed(**changes_from(changes))
    asked.require_possible(plan)
    with _class() as (connection, rules):
        values = plan.model_dump(mode="json"), asked.model_dump()
        found, is_new = submissions.submit(connection, given.name, *values, owner=getpass.getuser(), key=key)
        _tell(connection, rules, found, is_new, as_json)


def _tell(connection: Connection, rules: Rules, name: str, is_new: bool, as_json: bool) -> None:
    row = trainings.get(connection, name)
    seen = survey(connection, rules)
    reason = seen.reason(row.id) if row.id in seen.entries else row.message
    if as_json:
        answer = {"name": name, "id": row.id, "state": row.state, "is_new": is_new, "reason": reason}
        print(json.dumps(answer))
        return
    state = f"is {'queued' if is_new else row.state}{'' if is_new else ' already: this key was used for it'}"
    console.print(f"[bold]{name}[/bold] {state}. {escape(reason[:1].upper() + reason[1:])}.", soft_wrap=True)


def read_submission(source: str, name: str) -> foreign.Submission:
    """A preset's name, or a YAML or JSON file: a plan, {name, plan, demand}, or the shape of another system.

    Raises:
        PlanError: it can't be read or trained; says which field, and what is possible.
    """
    if name and name != (possible := foreign.training_name(name)):
        raise PlanError(
            f"name is {name!r}: a training's name has at most 50 small letters, digits and dashes, for example {possible}."
        )
    if source in PRESETS:
        return foreign.Submission(name=foreign.training_name(name or source), plan=preset(source))
    return foreign.from_values(_read(Path(source)), name, otherwise=Path(source).stem)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    if not path.exists():
        raise PlanError(f"{path} is neither a file nor a preset ({', '.join(PRESETS)}). Name a YAML or JSON file.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise PlanError(f"{path} is neither YAML nor JSON: {str(exc).splitlines()[0]}.") from exc
    if not isinstance(values, dict):
        raise PlanError(f"{path} holds {type(values).__name__}, not a plan with KEY: VALUE lines.")
    return values


def print_queue(as_json: bool) -> None:
    """Every training that runs or waits, in its order."""
    with _class() as (connection, rules):
        rows = queue_rows(survey(connection, rules))
    if as_json:
        print(json.dumps(rows))
        return
    if not rows:
        console.print("Nothing runs and nothing waits. Submit one: classgan submit PLAN.")
        return
    table = Table("", "training", "state", "owner", "priority", "start", "in words")
    for r in rows:
        position = "" if r["position"] is None else str(r["position"])
        words = escape(str(r["reason"]))
        table.add_row(position, r["name"], r["state"], escape(r["owner"]), str(r["priority"]), r["estimate"], words)
    console.print(table)


def queue_rows(seen: Survey) -> list[dict[str, Any]]:
    """The queue as plain values: running ones first as they come, then the waiting ones by position."""
    rows = []
    for w in seen.round.order:
        ahead = seen.outlooks.get(w.id)
        rows.append(
            {
                "name": w.name,
                "state": str(seen.entries[w.id].state),
                "owner": w.owner,
                "priority": w.priority,
                "position": ahead.position if ahead else None,
                "workers": sum(p.training == w.id for p in seen.round.placements.values()),
                "earliest": ahead.earliest.isoformat() if ahead and ahead.earliest else None,
                "latest": ahead.latest.isoformat() if ahead and ahead.latest else None,
                "estimate": ahead.estimate() if ahead else "",
                "reason": seen.reason(w.id),
                "never": bool(ahead and ahead.never),
            }
        )
    return sorted(rows, key=lambda r: r["position"] or 0)


def move_training(name: str, top: bool, after: str) -> None:
    if top == bool(after):
        raise TrainingError("Say where: --top, or --after OTHER.")
    with _class() as (connection, rules):
        console.print(move(connection, name, after, rules), soft_wrap=True)


def set_priority(name: str, priority: int) -> None:
    with _class() as (connection, rules):
        row = trainings.get(connection, name)
        submissions.set_priority(connection, row.id, priority)
        seen = survey(connection, rules)
        reason = seen.reason(row.id) if row.id in seen.entries else f"is {row.state}"
        console.print(f"{name} has priority {priority} now: {escape(reason)}.", soft_wrap=True)


def explain(name: str) -> None:
    """Why a training waits or runs where it does, or why a worker works for what it does."""
    with _class() as (connection, rules):
        seen, past = survey(connection, rules), placements.decisions(connection, name)
        for entry in seen.entries.values():
            if entry.wanted.name == name:
                console.print(f"[bold]{name}[/bold] {escape(seen.reason(entry.wanted.id))}.", soft_wrap=True)
                if never := cannot_ever(entry.wanted, seen.machines):
                    console.print(escape(never), soft_wrap=True)
        known = any(m.name == name for m in seen.machines) or trainings.find(connection, name) or past
    if not known:
        raise TrainingError(
            f"There is neither a training nor a worker called {name!r}. `classgan queue` and `classgan workers` list them."
        )
    table = Table("from", "to", "worker", "training", "why")
    for d in past:
        ended = clock(d.ended_at) if d.ended_at else "now"
        table.add_row(clock(d.decided_at), ended, escape(f"{d.worker} ({d.student})"), d.training, escape(d.reason))
    console.print(table if past else "No worker was placed yet.")


def print_workers(drain: str, undrain: str) -> None:
    """Who computes; drained ones get nothing new."""
    with _class() as (connection, _):
        for worker, by in ((drain, getpass.getuser()), (undrain, "")):
            if worker and not placements.drain(connection, worker, by):
                known = ", ".join(w.name for w in ledger.workers(connection)) or "none yet"
                raise TrainingError(f"There is no worker called {worker!r}. Workers here: {known}.")
        workers = ledger.workers(connection)
    if drain:
        console.print(f"{drain} finishes what it has and gets nothing new. Again: classgan workers --undrain {drain}")
    console.print(worker_table(workers))
