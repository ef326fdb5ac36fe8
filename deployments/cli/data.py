"""`classgan data …`: the images of a training on this machine."""

from pathlib import Path
from typing import Annotated

import typer

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
