"""`classgan models`: finished models, every version of them."""

from dataclasses import asdict
from pathlib import Path

from psycopg import Connection
from rich.console import Console
from rich.table import Table

from deployments.commands.reports import FILE, database_url
from deployments.commands.watch import print_json
from gan_core.files import write_whole
from gan_core.settings import settings
from gan_core.store import trainings, versions
from gan_core.store.engine import connect

console = Console()


def print_models(name: str, as_json: bool) -> None:
    with database_url() as url, connect(url) as connection:
        found = versions.models(connection, name)
    if as_json:
        print_json(found)
        return
    if not found:
        console.print("No model is kept yet: it happens at a training's end, or with `classgan models keep TRAINING`.")
        return
    table = Table("model", "training", "run", "iteration", "images seen", "Frechet", "kept")
    for model in found:
        frechet = f"{model.figures['frechet']:.1f}" if model.figures else ""
        origin = model.training, str(model.run), f"{model.iteration:,}", f"{model.images:,}"
        table.add_row(model.label, *origin, frechet, f"{model.created_at:%d %b %Y %H:%M}")
    console.print(table)


def show_model(label: str, as_json: bool) -> None:
    """Where it came from. Raises DataError if there is no such model."""
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
        "training": f"{model.training}, run {model.run}, after iteration {model.iteration:,} and {model.images:,} images",
        "plan": f"{model.plan_hash} (classgan runs show {model.training} --json)",
        "code": f"classgan {model.code_version}",
        "data": f"{model.data_source}, fingerprint {model.data_fingerprint}{known}",
    }
    for word, fact in lineage.items():
        console.print(f"{word:>9}  {fact}", markup=False, highlight=False, soft_wrap=True)
    table = Table("file", "bytes", "SHA-256")
    for file in files:
        table.add_row(file.name, f"{file.bytes:,}", file.sha256[:16])
    console.print(table)


def fetch_model(label: str, out: Path | None) -> None:
    """Write all files of a model's version. Raises DataError if there is no such model, or one is damaged."""
    with database_url() as url, connect(url) as connection:
        folder = fetched(connection, label, out)
    console.print(f"Its files → {folder}/", markup=False, soft_wrap=True)


def fetched(connection: Connection, label: str, out: Path | None = None) -> Path:
    """The folder with the files of this version, written now. Raises DataError as `fetch_model` does."""
    model = versions.model(connection, label)
    folder = out or settings().outputs / "models" / model.label
    contents = {
        a.name: versions.content(connection, model.id, a.name) for a in versions.artifacts(connection, model.id)
    }
    for name, content in contents.items():
        write_whole(folder / name, content)
    return folder


def keep_model(training: str, name: str) -> None:
    """Keep what a training has pushed. Raises DataError if that is nothing yet."""
    from gan_core import generators
    from gan_core.exports import keeping

    folder = settings().outputs / training
    with database_url() as url, connect(url) as connection:
        trainings.get(connection, training)
        pushed = generators.load(folder / FILE)
        label = keeping.keep(connection, training, folder, pushed.iteration, pushed.images, name)
    console.print(f"Kept as {label}. Draw with it: classgan generate model:{label}", soft_wrap=True)
