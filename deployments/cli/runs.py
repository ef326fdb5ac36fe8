"""`classgan runs …` and `classgan models …`: what ran when and with what, and what came of it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.options import JsonOption

runs = typer.Typer(no_args_is_help=True, help="Look up what ran when and with what, compare, export.")
models = typer.Typer(no_args_is_help=True, help="Look up and fetch finished models: every version is kept.")

Name = Annotated[str, typer.Argument(help="The training's name.")]
Label = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="A model; its newest version, if left out.")]


class By(StrEnum):
    """A row of the export is one of these."""

    ITERATION = "iteration"
    EPOCH = "epoch"
    WORKER = "worker"


@runs.command("list")
def runs_list(
    name: Annotated[str, typer.Argument(help="Of this training; of all, if left out.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="So many, the newest.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """List runs, the newest first: a training has one for each time that it was started."""
    from deployments.commands.runs import print_runs

    print_runs(name, limit, as_json)


@runs.command("show")
def runs_show(name: Name, as_json: JsonOption = False) -> None:
    """Show a training's runs, its versions of code and data, what each epoch measured, and the models that came of it."""
    from deployments.commands.runs import show_run

    show_run(name, as_json)


@runs.command("compare")
def runs_compare(
    names: Annotated[list[str], typer.Argument(metavar="NAME NAME...", help="Two trainings or more.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The picture of their curves, as .png; left out, outputs/comparison.png."),
    ] = None,
) -> None:
    """Show how trainings differ, in plan, versions and results, with a picture of their curves."""
    from deployments.commands.runs import compare_runs

    compare_runs(names, out)


@runs.command("export")
def runs_export(
    name: Name,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file.")],
    by: Annotated[By, typer.Option(help="What a row is.")] = By.ITERATION,
) -> None:
    """Write what a training measured as a table."""
    from deployments.commands.runs import export_run

    export_run(name, out, by.value)


@runs.command("mirror")
def runs_mirror(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Of the MLflow server, such as http://127.0.0.1:5000; left out, CLASSGAN_MLFLOW_URL."
        ),
    ] = "",
) -> None:
    """Copy a training into MLflow: plan, measures, files. Again, it adds what is new."""
    from deployments.commands.runs import mirror_run

    mirror_run(name, to)


@models.command("list")
def models_list(
    name: Annotated[str, typer.Argument(help="Of this model; of all, if left out.")] = "", as_json: JsonOption = False
) -> None:
    """List the versions of models, the newest first."""
    from deployments.commands.models import print_models

    print_models(name, as_json)


@models.command("show")
def models_show(label: Label, as_json: JsonOption = False) -> None:
    """Show where a model came from, back to its data, and which files it has."""
    from deployments.commands.models import show_model

    show_model(label, as_json)


@models.command("fetch")
def models_fetch(
    label: Label,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder; left out, outputs/models/NAME@VERSION.")
    ] = None,
) -> None:
    """Write a model's files into a folder."""
    from deployments.commands.models import fetch_model

    fetch_model(label, out)


@models.command("keep")
def models_keep(
    training: Annotated[str, typer.Argument(help="A training that has pushed at least once.")],
    name: Annotated[str, typer.Option("--as", help="The model's name; left out, the plan's or the training's.")] = "",
) -> None:
    """Keep what a training has drawn with until now as the next version of a model. At a training's end this happens by itself."""
    from deployments.commands.models import keep_model

    keep_model(training, name)
