"""`classgan models …`: finished models, every version of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deployments.cli.options import JsonOption
from deployments.cli.output import console, print_json, show
from deployments.cli.tables import Listing
from gan_core.files import write_whole
from gan_core.units import counted

if TYPE_CHECKING:
    from psycopg import Connection

FILE = "generator.safetensors"  # in a model's folder

commands = typer.Typer(no_args_is_help=True, help="List, show and fetch finished models. Every version is kept.")
Label = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="A model. Default version: the newest.")]


@commands.command("list")
def models_list(
    name: Annotated[str, typer.Argument(help="Name of a model. Default: all.")] = "", as_json: JsonOption = False
) -> None:
    """List the versions of models, the newest first."""
    from deployments.local.database import database_url
    from gan_core.store.coordinator import versions
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        found = versions.models(connection, name)
    if as_json:
        print_json(found)
        return
    if not found:
        console.print("No model is kept yet: it happens at a training's end, or with `classgan models keep TRAINING`.")
        return
    columns = ("model", "training", "run", "iteration", "images seen", "distance", "kept")
    table = Listing(*columns, folds=["kept"], spare=["images seen", "run"])
    for model in found:
        frechet = f"{model.figures['frechet']:.1f}" if model.figures else ""
        origin = model.training, str(model.run), f"{model.iteration:,}", f"{model.images:,}"
        table.add(model.label, *origin, frechet, f"{model.created_at:%d %b %Y %H:%M}")
    show(table)


@commands.command("show")
def models_show(label: Label, as_json: JsonOption = False) -> None:
    """Show where a model came from, back to its data, and which files it has."""
    from deployments.local.database import database_url
    from gan_core.store.coordinator import versions
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        model = versions.model(connection, label)
        files = versions.artifacts(connection, model.id)
        data = [d.label for d in versions.data_versions(connection) if d.fingerprint == model.data_fingerprint]
    if as_json:
        print_json(asdict(model) | {"files": files, "data_versions": data})
        return
    known = f", kept as {', '.join(data)}" if data else ""
    lineage = {
        "model": f"{model.label}, kept {model.created_at:%d %b %Y %H:%M}",
        "training": f"{model.training}, run {model.run}, after iteration {model.iteration:,} and {counted(model.images, 'image')}",
        "plan": f"{model.plan_hash} (classgan runs show {model.training} --json)",
        "code": f"classgan {model.code_version}",
        "data": f"{model.data_source}, fingerprint {model.data_fingerprint}{known}",
    }
    for word, fact in lineage.items():
        console.print(f"{word:>9}  {fact}", markup=False, highlight=False, soft_wrap=True)
    table = Listing("file", "bytes", "SHA-256")
    for file in files:
        table.add(file.name, f"{file.bytes:,}", file.sha256[:16])
    show(table)


@commands.command("fetch")
def models_fetch(
    label: Label,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the files. Default: outputs/models/NAME@VERSION.")
    ] = None,
) -> None:
    """Write a model's files into a folder."""
    from deployments.local.database import database_url
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        folder = fetched(connection, label, out)
    console.print(f"Its files → {folder}/", markup=False, soft_wrap=True)


@commands.command("keep")
def models_keep(
    training: Annotated[str, typer.Argument(help="A training that has pushed at least once.")],
    name: Annotated[
        str, typer.Option("--as", help="The model's name. Default: the plan's model_name, or else the training's name.")
    ] = "",
) -> None:
    """Keep a training's newest published generator as the next version of a model. At a training's end this happens by itself."""
    from deployments.local.database import database_url
    from gan_core.exports import model_versions
    from gan_core.networks import generators
    from gan_core.settings import settings
    from gan_core.store.coordinator import trainings
    from gan_core.store.engine import connect

    folder = settings().outputs / training
    with database_url() as url, connect(url) as connection:
        trainings.get(connection, training)
        pushed = generators.load(folder / FILE)
        label = model_versions.keep(connection, training, folder, pushed.iteration, pushed.images, name)
    console.print(f"Kept as {label}. Draw with it: classgan generate model:{label}", soft_wrap=True)


def fetched(connection: Connection, label: str, out: Path | None = None) -> Path:
    """The folder with the files of this version, written now. Raises DataError as `fetch_model` does."""
    from gan_core.settings import settings
    from gan_core.store.coordinator import versions

    model = versions.model(connection, label)
    folder = out or settings().outputs / "models" / model.label
    contents = {
        a.name: versions.content(connection, model.id, a.name) for a in versions.artifacts(connection, model.id)
    }
    for name, content in contents.items():
        write_whole(folder / name, content)
    return folder
