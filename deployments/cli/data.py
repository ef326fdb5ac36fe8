"""`classgan data …`: the images of a training on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.options import JsonOption

data = typer.Typer(no_args_is_help=True, help="Prepare, check or look at the images of a training.")

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="As in a plan: digits, folder:PATH, zip:PATH, celeba, huggingface:OWNER/NAME, torchvision:NAME.",
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option("--image-size", "-s", help="Height and width in pixels: 32, 64 or 128. Left out: 64; digits: 32."),
]
ChannelsOption = Annotated[
    int | None, typer.Option("--channels", "-c", help="1 for grey images, 3 for colour. Left out: 3; digits: 1.")
]


@data.command("prepare")
def data_prepare(name: DataArgument, image_size: SizeOption = None, channels: ChannelsOption = None) -> None:
    """Fetch the images if need be, and resize them, so that a training can begin at once. Broken off, it goes on where it was."""
    from deployments.commands.data import prepare

    prepare(name, image_size, channels)


@data.command("check")
def data_check(
    name: DataArgument,
    image_size: SizeOption = None,
    channels: ChannelsOption = None,
    training: Annotated[
        str, typer.Option("--training", "-t", help="Compare with this training's images; also sets size and channels.")
    ] = "",
) -> None:
    """Name the broken files, and say whether these are a training's images."""
    from deployments.commands.data import check

    check(name, image_size, channels, training)


@data.command("info")
def data_info(
    name: DataArgument,
    image_size: SizeOption = None,
    channels: ChannelsOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A picture of 64 of the images, as .png.")] = None,
) -> None:
    """Say how many images there are, how large, with which labels, and where they come from."""
    from deployments.commands.data import info

    info(name, image_size, channels, out)


VersionName = Annotated[str, typer.Argument(metavar="NAME", help="Of the data set: small letters, digits and dashes.")]


@data.command("register")
def data_register(
    name: VersionName, data: DataArgument, image_size: SizeOption = None, channels: ChannelsOption = None
) -> None:
    """Keep the images' present state as a version of a data set; the same images again are the same version.

    A plan names it with data_version=NAME@VERSION; a training that finds other images is refused.
    """
    from deployments.commands.data import register

    register(name, data, image_size, channels)


@data.command("versions")
def data_versions(
    name: Annotated[str, typer.Argument(help="Of this data set; of all, if left out.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the versions of data sets, the newest first."""
    from deployments.commands.data import print_versions

    print_versions(name, as_json)


@data.command("show")
def data_show(
    label: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="Its newest version, if left out.")],
    as_json: JsonOption = False,
) -> None:
    """Show a version of a data set, and which trainings learned from these images."""
    from deployments.commands.data import show_version

    show_version(label, as_json)
