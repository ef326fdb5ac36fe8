"""`classgan generate` and `push`: what a trained generator draws, and its way to the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.output import console
from deployments.cli.results.models import FILE, fetched
from gan_core.errors import DataError, HubError
from gan_core.files import write_whole
from gan_core.units import counted

commands = typer.Typer()


@commands.command()
def generate(
    source: Annotated[
        str,
        typer.Argument(
            help="A generator's file, the name of a training, model:NAME[@VERSION], or hub:OWNER/REPO.",
            show_default=False,
        ),
    ] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="Images to draw.")] = 64,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .png for one grid, or a folder for single files.")] = Path(
        "generated.png"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed draws the same images.")] = 0,
    origin: Annotated[str, typer.Option("--from", metavar="SOURCE", help="The same as the argument.")] = "",
) -> None:
    """Draw images from a trained generator, as a grid or as single files."""
    if bool(source) == bool(origin):
        raise typer.BadParameter("Name one generator: a file, a training, model:NAME, or hub:OWNER/REPO.")
    generate_images(source or origin, count, out, seed)


@commands.command()
def push(
    name: Annotated[str, typer.Argument(help="The training's name.", show_default=False)] = "",
    repo: Annotated[
        str, typer.Option(metavar="OWNER/REPO", help="Repository on the hub. Default: the plan's hub_repo.")
    ] = "",
    check: Annotated[
        bool,
        typer.Option("--check", help="Push nothing, only check library and token, and with --repo the right to write."),
    ] = False,
) -> None:
    """Push a training's newest generator to the Hugging Face Hub, with model card and pictures, in one commit."""
    if not check and not name:
        raise typer.BadParameter("Name a training, or try the hub with --check.")
    check_hub(repo) if check else push_training(name, repo)


def generate_images(source: str, count: int, out: Path, seed: int) -> None:
    """Draw images from a generator's file, a training's newest one, a kept one (`model:NAME[@VERSION]`), or one on the hub
    (`hub:OWNER/REPO`).

    Raises:
        DataError: there is no such generator.
        HubError: the hub doesn't give it.
    """
    import torch

    from gan_core.data.images import grid
    from gan_core.networks import generators
    from gan_core.networks.drawing import draw
    from gan_core.quality import pictures

    if out.suffix not in ("", ".png"):
        raise DataError(f"{out}: a grid is written as .png, single images into a folder. Choose one of these.")
    generator = generators.load(_generator_file(source))
    noise = torch.randn(count, generator.plan.latent_dim, 1, 1, generator=torch.Generator().manual_seed(seed))
    images = draw(generator.plan, generator.average, noise, generator.statistics)
    if out.suffix == ".png":
        write_whole(out, pictures.png(grid(images, columns=max(1, round(count**0.5)))))
        console.print(f"{counted(count, 'image')} → {out}")
        return
    for index in range(count):
        write_whole(out / f"{index:05d}.png", pictures.png(grid(images[index : index + 1], columns=1)))
    console.print(f"{counted(count, 'image')} → {out}/00000.png to {count - 1:05d}.png")


def _generator_file(source: str) -> Path:
    """Where this generator's file lies; fetched, if it comes from the hub or the database."""
    from deployments.local.database import database_url
    from gan_core.exports import hub
    from gan_core.settings import settings
    from gan_core.store.engine import connect

    place, _, name = source.partition(":")
    if place == "hub" and name:
        return hub.fetch(name, FILE, settings().home / "hub")
    if place == "model" and name:
        with database_url() as url, connect(url) as connection:
            return fetched(connection, name) / FILE
    path = Path(source)
    if path.is_dir():
        path /= FILE
    if path.suffix != ".safetensors":
        if path.exists():
            raise DataError(
                f"{path} is no generator's file: those end in .safetensors, such as outputs/NAME/{FILE}. "
                "Name one, or the training that made it."
            )
        path = settings().outputs / source / FILE
        if not path.exists():
            known = sorted(p.parent.name for p in settings().outputs.glob("*/generator.safetensors"))
            raise DataError(
                f"There is no generator of {source!r}: {path} is missing. Generators here: {', '.join(known) or 'none yet'}."
            )
    return path


def push_training(name: str, repo: str) -> None:
    """Push what `outputs/NAME` holds; `repo` "" is the one in the training's plan.

    Raises:
        DataError: nothing was pushed to that folder yet.
        HubError: neither names a repository, or the hub says no.
    """
    from deployments.local.database import database_url
    from gan_core.exports import hub, reports
    from gan_core.networks import generators
    from gan_core.settings import settings
    from gan_core.store.engine import connect

    folder = settings().outputs / name
    with database_url() as url, connect(url) as connection:
        told = reports.training_record(connection, name)
    target = repo or told.plan.hub_repo
    if not target:
        raise HubError(
            f"The plan of {name!r} names no repository. Name one: classgan push {name} --repo OWNER/REPO, "
            f"or for every push: classgan change {name} --set hub_repo=OWNER/REPO"
        )
    hub.require_repo(target)
    generator = generators.load(folder / FILE)
    files = reports.repository(told, folder, f"hub:{target}", generator.iteration, generator.images)
    with console.status(f"pushing to {target}"):
        pushed = hub.commit(target, files, f"{name}: iteration {generator.iteration:,}")
    console.print(
        f"{counted(pushed.files, 'file')} after iteration {generator.iteration:,} → {pushed.url}", soft_wrap=True
    )
    console.print(f"Anybody who may see it: classgan generate hub:{target}", soft_wrap=True)


def check_hub(repo: str) -> None:
    """Show each step of a push as it is tried, with a small file instead of a generator.

    Raises:
        HubError: one failed; the sentence says what to do.
    """
    from gan_core.exports import hub

    for step in hub.check(repo):
        console.print(f"[green]good[/green]  {step}", soft_wrap=True, highlight=False)
    if not repo:
        console.print("Name a repository to see whether this token may write there: --repo OWNER/REPO")
