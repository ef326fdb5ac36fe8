"""`classgan runs …`: what ran when and with what, and what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deployments.cli.options import JsonOption
from deployments.cli.output import console, print_json, show
from deployments.cli.tables import Listing
from deployments.prefect_settings import keep_to
from gan_core.errors import DataError, MirrorError, TrainingError
from gan_core.files import write_private, write_whole
from gan_core.units import counted

if TYPE_CHECKING:
    from gan_core.store.coordinator import runs

commands = typer.Typer(no_args_is_help=True, help="List, show, compare and export the runs of trainings.")
Name = Annotated[str, typer.Argument(help="The training's name.")]
CALLED = {
    "frechet": "random-feature distance",
    "kid": "KID",
}  # figures whose names in tables aren't those of their columns


class By(StrEnum):
    """A row of the export is one of these."""

    ITERATION = "iteration"
    EPOCH = "epoch"
    WORKER = "worker"


@commands.command("list")
def runs_list(
    name: Annotated[str, typer.Argument(help="Name of a training. Default: all.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Number of runs to show, the newest.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """List runs, the newest first. Each start of a training is a run."""
    from deployments.local.database import database_url
    from gan_core.store.coordinator import runs, trainings
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        if name:
            trainings.get(connection, name)
        found = runs.every(connection, name, limit)
    if as_json:
        print_json(found)
        return
    if found:
        show(_table(found))
    else:
        console.print("Nothing ran yet. Start a training: classgan submit PLAN.")


@commands.command("show")
def runs_show(name: Name, as_json: JsonOption = False) -> None:
    """Show a training's runs, its versions of code and data, the figures of each epoch, and the models it made."""
    from deployments.local.database import database_url
    from gan_core.store.coordinator import runs, trainings, versions
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        row = trainings.get(connection, name)
        found = runs.every(connection, name)
        epochs = runs.metrics(connection, row.id, "epoch")
        workers = runs.metrics(connection, row.id, "worker")
        made = [m for m in versions.models(connection) if m.training == name]
        data = [d for d in versions.data_versions(connection) if d.fingerprint == row.data_fingerprint]
    if as_json:
        answer = {
            "name": name,
            "state": row.state,
            "message": row.message,
            "plan": row.plan,
            "data": {
                "source": row.data_source,
                "fingerprint": row.data_fingerprint,
                "images": row.data_images,
                "versions": [d.label for d in data],
            },
            "runs": found,
            "epochs": epochs,
            "workers": workers,
            "models": [m.label for m in made],
        }
        print_json(answer)
        return
    _say(f"{name} {row.state}{f': {row.message}' if row.message else ''}")
    known = f", kept as {', '.join(d.label for d in data)}" if data else ""
    _say(
        f"data {row.data_source or row.plan['data']}, {counted(row.data_images, 'image')}, fingerprint {row.data_fingerprint}{known}"
    )
    if found:
        packages = ", ".join(f"{package} {version}" for package, version in found[0].packages.items())
        _say(f"code classgan {found[0].code_version}, {packages}")
    _say(f"models {', '.join(m.label for m in made) or 'none yet'}")
    measures = ("g_loss", "d_loss", "frechet", "wasserstein"), ("images_per_second", "g_loss", "d_loss")
    for table in (
        _table(found),
        _figures(epochs, measures[0], "epoch", "last_iteration", "images", "seconds"),
        _figures(workers, measures[1], "worker", "student", "units", "images", "seconds"),
    ):
        _say("")
        show(table)


@commands.command("compare")
def runs_compare(
    names: Annotated[list[str], typer.Argument(metavar="NAME NAME...", help="Two trainings or more.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File for the picture of their curves, a .png. Default: outputs/comparison.png."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how trainings differ, in plan, versions and results, with a picture of their curves."""
    from deployments.local.database import database_url
    from gan_core.plan import checked_plan
    from gan_core.quality.curves import draw_comparison
    from gan_core.settings import settings
    from gan_core.store.coordinator import evaluations, runs, trainings
    from gan_core.store.engine import connect
    from gan_core.store.viewers import ledger

    keep_to(settings().home)
    names, out = list(dict.fromkeys(names)), out or settings().outputs / "comparison.png"
    if len(names) < 2:
        raise TrainingError(
            "Name two trainings or more: classgan runs compare NAME NAME. `classgan runs list` has them."
        )
    if out.suffix != ".png":
        raise DataError(f"{out}: the picture is written as .png. Choose such a name.")
    with database_url() as url, connect(url) as connection:
        rows = [trainings.get(connection, name) for name in names]
        latest = [next(iter(runs.every(connection, name, limit=1)), None) for name in names]
        curves = {
            row.name: (ledger.history(connection, row.id), evaluations.of_training(connection, row.id)) for row in rows
        }
        trained = [ledger.seconds_trained(connection, row.id) for row in rows]
    plans = [checked_plan(row.plan).model_dump() for row in rows]
    compared: dict[str, list[Any]] = {knob: [plan[knob] for plan in plans] for knob in plans[0]}
    compared["data fingerprint"] = [row.data_fingerprint for row in rows]
    compared["code"] = [run.code_version if run else "" for run in latest]
    for package in runs.PACKAGES:
        compared[package] = [run.packages.get(package, "") if run else "" for run in latest]
    differences = {what: values for what, values in compared.items() if any(value != values[0] for value in values)}
    ends = [history[-1] if history else None for history, _ in curves.values()]
    scores = [evaluated[-1] if evaluated else None for _, evaluated in curves.values()]
    results: dict[str, list[Any]] = {
        "iterations done": [row.iteration for row in rows],
        "images seen": [row.images for row in rows],
        "minutes of training": [seconds / 60 for seconds in trained],
        **{loss: [end and getattr(end, loss) for end in ends] for loss in ("g_loss", "d_loss")},
        **{score: [found and getattr(found, score) for found in scores] for score in SCORES},
    }
    protocols = {found.protocol for found in scores if found}
    comparable = len({row.data_fingerprint for row in rows}) == 1 and len(protocols) <= 1
    write_whole(out, draw_comparison(curves))
    if as_json:
        named = {what.replace(" ", "_"): values for what, values in results.items()}
        told = {"differences": differences, "results": named, "scores_comparable": comparable, "curves": out}
        print_json({"names": names, **told})
        return
    table = Listing("what", *names)
    for what, values in differences.items():
        table.add(what, *map(str, values))
    if not differences:
        table.add("plan, data, versions", *["the same"] * len(names))
    table.section()
    for what, values in results.items():
        table.add(
            CALLED.get(what, what),
            *("" if value is None else format(value, FORMS.get(what, ".3g")) for value in values),
        )
    show(table)
    if not comparable:
        console.print("Their data or protocol differ: the figures of quality can't be compared.")
    _say(f"Their curves → {out}")


@commands.command("export")
def runs_export(
    name: Name,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file.")],
    by: Annotated[By, typer.Option(help="What one row of the table stands for.")] = By.ITERATION,
) -> None:
    """Write what a training measured as a table."""
    export_run(name, out, by.value)


@commands.command("mirror")
def runs_mirror(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Address of the MLflow server, such as http://127.0.0.1:5000. Default: CLASSGAN_MLFLOW_URL.",
        ),
    ] = "",
) -> None:
    """Copy a training into MLflow: plan, measures, files. A second call adds only what lacks."""
    mirror_run(name, to)


TABLES = (".csv", ".parquet")
SCORES = ("frechet", "kid", "wasserstein", "diversity", "coverage")
FORMS = {"iterations done": ",", "images seen": ",", "minutes of training": ".1f", "g_loss": ".3f", "d_loss": ".3f"}


def _table(found: Sequence[runs.Run]) -> Listing:
    columns = ("training", "run", "began", "ended", "iterations", "how", "plan", "code")
    table = Listing(*columns, folds=["how"], spare=["code", "plan", "ended"])
    for run in found:
        last = "" if run.last_iteration is None else f"{run.last_iteration:,}"
        ended = f"{run.ended_at:%d %b %H:%M:%S}" if run.ended_at else ""
        how = run.said + (f": {run.reason}" if run.reason else "")
        table.add(
            run.training,
            str(run.number),
            f"{run.started_at:%d %b %H:%M:%S}",
            ended,
            f"{run.first_iteration:,} → {last}",
            how,
            run.plan_hash[:8],
            run.code_version,
        )
    return table


def _figures(rows: Sequence[dict[str, Any]], figures: Sequence[str], *facts: str) -> Listing:
    """A table of plain facts, then of figures."""
    heads = (CALLED.get(column, column.replace("_", " ")) for column in (*facts, *figures))
    table = Listing(*heads, folds=["student"])
    for row in rows:
        shown = [f"{row[c]:,.0f}" if isinstance(row[c], int | float) else str(row[c]) for c in facts]
        table.add(*shown, *("" if row[c] is None else f"{row[c]:.3g}" for c in figures))
    return table


def export_run(name: str, out: Path, by: runs.By) -> None:
    """Write a training's measures.

    Raises:
        DataError: the file's ending is neither .csv nor .parquet.
        TrainingError: there is no such training.
    """
    import pandas

    from deployments.local.database import database_url
    from gan_core.store.coordinator import runs, trainings
    from gan_core.store.engine import connect

    if out.suffix not in TABLES:
        raise DataError(f"{out}: a table is written as {' or '.join(TABLES)}. Choose such a name.")
    with database_url() as url, connect(url) as connection:
        rows = runs.metrics(connection, trainings.get(connection, name).id, by)
    frame = pandas.DataFrame(rows)
    content = frame.to_csv(index=False).encode() if out.suffix == ".csv" else frame.to_parquet(index=False)
    write = write_private if by == "worker" else write_whole  # which holds names
    write(out, content)
    _say(f"{counted(len(frame), 'row')} → {out}")


def mirror_run(name: str, uri: str) -> None:
    """Raises MirrorError if no server is named, or it doesn't take the training."""
    from deployments.local.database import database_url
    from gan_core.exports.mlflow import mirror
    from gan_core.settings import settings
    from gan_core.store.engine import connect

    uri = uri or settings().mlflow_url
    if not uri:
        raise MirrorError(f"Say where: classgan runs mirror {name} --to http://HOST:PORT, or set CLASSGAN_MLFLOW_URL.")
    with database_url() as url, connect(url) as connection, console.status(f"copying {name} to {uri}"):
        mirrored = mirror(connection, name, uri)
    _say(f"{name} is run {mirrored.run_id} at {uri}.")
    if mirrored.changed:
        _say(
            f"Its parameters there are the plan as it was; MLflow changes none. Changed since: {mirrored.changed}. The tag "
            "classgan.plan_changes says so, too."
        )


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
