"""Images of a training on this machine: prepared, checked, looked at."""

import getpass
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deployments.commands.reports import database_url, open_with_bar
from deployments.commands.watch import print_json
from gan_core import pictures
from gan_core.data.images import ImageSet, detail, grid, kind_and_place, require_same_data
from gan_core.errors import DataError
from gan_core.files import write_whole
from gan_core.plan import Plan, checked_plan
from gan_core.settings import settings
from gan_core.store import trainings, versions
from gan_core.store.engine import connect

console = Console()
SHOWN = 64  # images in a grid


def prepare(name: str, image_size: int | None, channels: int | None) -> None:
    """Fetch and resize. Raises DataError if the data is nowhere or mostly broken."""
    plan = _plan(name, image_size, channels)
    images = open_with_bar(plan, settings().cache)
    _say(f"{len(images):,} images of {_source(images)} are ready at {plan.image_size}x{plan.image_size}.")
    _say_broken(images)


def check(name: str, image_size: int | None, channels: int | None, training: str) -> None:
    """Name broken files, and compare.

    Raises:
        DataError: these are not the training's images.
        TrainingError: there is no such training.
    """
    row = None
    if training:
        with database_url() as url, connect(url) as connection:
            row = trainings.get(connection, training)
        image_size, channels = row.plan["image_size"], row.plan["channels"]
        if not row.data_fingerprint:
            raise DataError(f"Training {training!r} has not opened its images yet: start it, then compare.")
    plan = _plan(name, image_size, channels)
    if row is not None and row.data_source and name == row.plan["data"]:
        plan = plan.changed(data=row.data_source)  # at the revision that it reads
    images = open_with_bar(plan, settings().cache)
    _say(f"{len(images):,} images of {_source(images)}, fingerprint {images.fingerprint}.")
    _say_broken(images)
    if row is not None:
        require_same_data(images, row.data_fingerprint, row.data_images)
        _say(f"They are those of training {training!r}.")


def info(name: str, image_size: int | None, channels: int | None, out: Path | None) -> None:
    """Describe the images; `out` is a PNG of some. Raises DataError as `prepare` does."""
    if out is not None and out.suffix != ".png":
        raise DataError(f"{out}: the picture is written as .png. Choose such a name.")
    plan = _plan(name, image_size, channels)
    images = open_with_bar(plan, settings().cache)
    size = len(images) * plan.image_size**2 * plan.channels
    facts = {
        "images": f"{len(images):,} of {plan.image_size}x{plan.image_size}, {'grey' if plan.channels == 1 else 'colour'}",
        "source": _source(images),
        "fingerprint": images.fingerprint,
        "on this disk": f"{size / 1e6:,.1f} MB resized, below {settings().cache}",
        "files": ", ".join(f"{shard.images:,}" for shard in images.shards) if len(images.shards) > 1 else "",
        "labels": _labels(images),
        "detail": "{:.1f} to {:.1f}, half below {:.1f}".format(*np.quantile(detail(images), (0, 1, 0.5))),
        "broken": f"{len(images.skipped):,} left out" if images.skipped else "none",
    }
    for word, fact in facts.items():
        if fact:
            _say(f"{word:>12}  {fact}")
    if out is not None:
        chosen = np.linspace(0, len(images) - 1, min(SHOWN, len(images))).astype(int)
        write_whole(out, pictures.png(grid(images.batch(chosen))))
        _say(f"{len(chosen)} of them → {out}")


def register(name: str, data: str, image_size: int | None, channels: int | None) -> None:
    """Keep these images' fingerprint as a version. Raises DataError as `prepare` does, or for an impossible name."""
    versions.parted(name)  # before an hour of resizing
    images = open_with_bar(_plan(data, image_size, channels), settings().cache)
    with database_url() as url, connect(url) as connection:
        version, is_new = versions.add_data(
            connection, name, images.source or data, images.fingerprint, len(images), getpass.getuser()
        )
    known = "" if is_new else ", as it was already"
    _say(
        f"{version.images:,} images of {version.source}, fingerprint {version.fingerprint}, are {version.label}{known}."
    )
    _say(f"A plan names them: --set data={version.source} --set data_version={version.label}")


def print_versions(name: str, as_json: bool) -> None:
    with database_url() as url, connect(url) as connection:
        found = versions.data_versions(connection, name)
    if as_json:
        print_json(found)
        return
    table = Table("version", "images", "fingerprint", "source", "registered", "by", "trainings")
    for d in found:
        when = f"{d.created_at:%d %b %Y %H:%M}"
        row = d.label, f"{d.images:,}", d.fingerprint, d.source, when, d.registered_by, str(d.trainings)
        table.add_row(*map(escape, row))
    console.print(table if found else "No version is registered yet: classgan data register NAME DATA.")


def show_version(label: str, as_json: bool) -> None:
    """Raises DataError if there is no such version."""
    with database_url() as url, connect(url) as connection:
        version = versions.data_version(connection, label)
        learned = [t.name for t in trainings.every(connection) if t.data_fingerprint == version.fingerprint]
    facts = asdict(version) | {"trainings": learned}
    if as_json:
        print_json(facts)
        return
    for word in ("source", "fingerprint", "images", "registered_by", "created_at"):
        fact = facts[word]
        _say(f"{word.replace('_', ' '):>13}  {f'{fact:,}' if isinstance(fact, int) else fact}")
    _say(f"{'trainings':>13}  {', '.join(learned) or 'none yet'}")


def _plan(name: str, image_size: int | None, channels: int | None) -> Plan:
    kind_and_place(name)  # says more than the plan's pattern
    usual = (32, 1) if name == "digits" else (64, 3)
    return checked_plan(
        {"data": name, "image_size": image_size or usual[0], "channels": channels or usual[1]},
    )


def _source(images: ImageSet) -> str:
    return images.source or images.name


def _labels(images: ImageSet) -> str:
    if images.labels is None:
        return "none"
    values, counts = np.unique(images.labels, return_counts=True)
    shown = ", ".join(f"{value}: {count:,}" for value, count in zip(values[:12], counts[:12], strict=True))
    return f"{len(values)} ({shown}{', …' if len(values) > 12 else ''})"


def _say_broken(images: ImageSet) -> None:
    if images.skipped:
        _say(f"{len(images.skipped):,} broken files are left out:")
        for name in images.skipped:
            _say(f"  {name}")


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
