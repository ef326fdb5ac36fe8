"""`classgan data …`: the images of a training on this machine, prepared, checked, looked at."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deployments.cli.options import JsonOption
from deployments.cli.output import console, open_with_bar, print_json, show
from deployments.cli.tables import Listing
from gan_core.errors import DataError
from gan_core.files import write_whole
from gan_core.units import counted

if TYPE_CHECKING:
    from gan_core.data.images import ImageSet
    from gan_core.plan import Plan

commands = typer.Typer(no_args_is_help=True, help="Prepare, check or look at the images of a training.")
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="As in a plan: digits, folder:PATH, zip:PATH, celeba, huggingface:OWNER/NAME, torchvision:NAME.",
    ),
]

SizeOption = Annotated[
    int | None,
    typer.Option("--image-size", "-s", help="Height and width in pixels: 32, 64 or 128. Default: 64; for digits 32."),
]

ChannelsOption = Annotated[
    int | None, typer.Option("--channels", "-c", help="1 for grey images, 3 for colour. Default: 3; for digits 1.")
]

BackgroundOption = Annotated[
    str | None, typer.Option("--background", "-b", help="Colour under transparent pixels. Default: #ffffff, white.")
]


@commands.command("prepare")
def data_prepare(
    name: DataArgument,
    image_size: SizeOption = None,
    channels: ChannelsOption = None,
    background: BackgroundOption = None,
) -> None:
    """Fetch the images if needed, and resize them, so that a training can begin at once. After an interruption, it goes on where it stopped."""
    from gan_core.settings import settings

    plan = _plan(name, image_size, channels, background)
    images = open_with_bar(plan, settings().cache)
    _say(
        f"{counted(len(images), 'image')} of {_source(images)} {'is' if len(images) == 1 else 'are'} ready at {plan.image_size}x{plan.image_size}."
    )
    _say_broken(images)


@commands.command("check")
def data_check(
    name: DataArgument,
    image_size: SizeOption = None,
    channels: ChannelsOption = None,
    background: BackgroundOption = None,
    training: Annotated[
        str,
        typer.Option(
            "--training", "-t", help="Compare with this training's images; sets size, channels and background."
        ),
    ] = "",
) -> None:
    """List the broken files, and compare the images with a training's."""
    from deployments.local.database import database_url
    from gan_core.data.images import require_same_data
    from gan_core.settings import settings
    from gan_core.store.coordinator import trainings
    from gan_core.store.engine import connect

    row = None
    if training:
        with database_url() as url, connect(url) as connection:
            row = trainings.get(connection, training)
        image_size, channels = row.plan["image_size"], row.plan["channels"]
        background = row.plan.get("background")  # a plan of version 0.1 has none
        if not row.data_fingerprint:
            raise DataError(f"Training {training!r} has not opened its images yet: start it, then compare.")
    plan = _plan(name, image_size, channels, background)
    if row is not None and row.data_source and name == row.plan["data"]:
        plan = plan.changed(data=row.data_source)  # at the revision that it reads
    images = open_with_bar(plan, settings().cache, row.data_fingerprint if row else "")
    _say(f"{_source(images)}: {images.facts}.")
    _say_broken(images)
    if row is not None:
        require_same_data(images, row.data_fingerprint, row.data_images)
        _say(f"They are those of training {training!r}.")


@commands.command("info")
def data_info(
    name: DataArgument,
    image_size: SizeOption = None,
    channels: ChannelsOption = None,
    background: BackgroundOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for a picture of 64 of the images, a .png.")
    ] = None,
) -> None:
    """Say how many images there are, how large, with which labels, and where they come from."""
    import numpy as np

    from gan_core.data.images import detail, grid
    from gan_core.quality import pictures
    from gan_core.settings import settings

    if out is not None and out.suffix != ".png":
        raise DataError(f"{out}: the picture is written as .png. Choose such a name.")
    plan = _plan(name, image_size, channels, background)
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
        "transparent": f"{images.over:,}, on the background {images.background}" if images.over else "",
        "broken": f"{len(images.skipped):,} left out" if images.skipped else "none",
    }
    for word, fact in facts.items():
        if fact:
            _say(f"{word:>12}  {fact}")
    if out is not None:
        chosen = np.linspace(0, len(images) - 1, min(SHOWN, len(images))).astype(int)
        write_whole(out, pictures.png(grid(images.batch(chosen))))
        _say(f"{len(chosen)} of them → {out}")


VersionName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the data set: small letters, digits and dashes.")
]


@commands.command("register")
def data_register(
    name: VersionName,
    data: DataArgument,
    image_size: SizeOption = None,
    channels: ChannelsOption = None,
    background: BackgroundOption = None,
) -> None:
    """Register the images, as they are now, as a version of a data set. The same images get the same version again.

    A plan names it with data_version=NAME@VERSION; a training that finds other images is refused.
    """
    from deployments.local.database import database_url
    from gan_core.settings import settings
    from gan_core.store.coordinator import versions
    from gan_core.store.engine import connect

    versions.parted(name)  # before an hour of resizing
    images = open_with_bar(_plan(data, image_size, channels, background), settings().cache)
    with database_url() as url, connect(url) as connection:
        version, is_new = versions.add_data(
            connection, name, images.source or data, images.fingerprint, len(images), getpass.getuser()
        )
    known = "" if is_new else ", as it was already"
    _say(
        f"{counted(version.images, 'image')} of {version.source}, fingerprint {version.fingerprint}, are {version.label}{known}."
    )
    behind = f" --set background={images.background}" if images.over else ""
    _say(f"A plan names them: --set data={version.source} --set data_version={version.label}{behind}")


@commands.command("versions")
def data_versions(
    name: Annotated[str, typer.Argument(help="Name of a data set. Default: all.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the versions of data sets, the newest first."""
    from deployments.local.database import database_url
    from gan_core.store.coordinator import versions
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        found = versions.data_versions(connection, name)
    if as_json:
        print_json(found)
        return
    if not found:
        console.print("No version is registered yet: classgan data register NAME DATA.")
        return
    columns = ("version", "images", "fingerprint", "source", "registered", "by", "trainings")
    table = Listing(*columns, folds=["registered"], spare=["by", "registered"])
    for d in found:
        when = f"{d.created_at:%d %b %Y %H:%M}"
        table.add(d.label, f"{d.images:,}", d.fingerprint, d.source, when, d.registered_by, str(d.trainings))
    show(table)


@commands.command("show")
def data_show(
    label: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="A data set. Default version: the newest.")],
    as_json: JsonOption = False,
) -> None:
    """Show a version of a data set, and which trainings learned from these images."""
    from deployments.local.database import database_url
    from gan_core.store.coordinator import trainings, versions
    from gan_core.store.engine import connect

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


SHOWN = 64  # images in a grid


def _plan(name: str, image_size: int | None, channels: int | None, background: str | None) -> Plan:
    from gan_core.data.images import kind_and_place
    from gan_core.plan import checked_plan

    kind_and_place(name)  # says more than the plan's pattern
    usual = (32, 1) if name == "digits" else (64, 3)
    values = {"data": name, "image_size": image_size or usual[0], "channels": channels or usual[1]}
    return checked_plan(values | ({"background": background} if background else {}))


def _source(images: ImageSet) -> str:
    return images.source or images.name


def _labels(images: ImageSet) -> str:
    import numpy as np

    if images.labels is None:
        return "none"
    values, counts = np.unique(images.labels, return_counts=True)
    shown = ", ".join(f"{value}: {count:,}" for value, count in zip(values[:12], counts[:12], strict=True))
    return f"{len(values)} ({shown}{', …' if len(values) > 12 else ''})"


def _say_broken(images: ImageSet) -> None:
    if images.skipped:
        _say(f"{counted(len(images.skipped), 'broken file')} left out:")
        for name in images.skipped:
            _say(f"  {name}")


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
