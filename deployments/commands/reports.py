"""What commands write: grades, generated images, a training in this process. And the database that they all look into."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from deployments.door import Door
from gan_core.errors import DataError, StackError
from gan_core.files import write_whole
from gan_core.plan import Plan
from gan_core.settings import settings
from gan_core.store.engine import connect
from gan_core.units import Measures

console = Console()
FILE = "generator.safetensors"


@contextmanager
def database_url() -> Generator[str]:
    """The database to look into: the setting, the class that runs on this machine, or its data after it has ended.

    Raises:
        StackError: nothing was ever trained here.
    """
    from deployments.local_stack import LocalStack
    from deployments.postgres import Postgres

    door = Door.load(settings().home)
    if elsewhere := settings().database_url or (door.database_url if door else ""):
        yield elsewhere
        return
    try:
        yield LocalStack(settings().home, settings().outputs).attach().database
        return
    except StackError:
        pass
    if not (settings().home / "postgres" / "PG_VERSION").exists():
        raise StackError(
            f"There is no class in {settings().home.resolve()} yet. Start with `classgan demo`, or set CLASSGAN_DATABASE_URL."
        )
    server = Postgres(settings().home / "postgres")
    server.start()
    try:
        yield server.url()
    finally:
        server.stop()


def generate_images(source: str, count: int, out: Path, seed: int) -> None:
    """Draw images from a generator's file, a training's newest one, a kept one (`model:NAME[@VERSION]`), or one on the hub
    (`hub:OWNER/REPO`).

    Raises:
        DataError: there is no such generator.
        HubError: the hub doesn't give it.
    """
    import torch

    from gan_core import generators, pictures
    from gan_core.data.images import grid
    from gan_core.update import draw

    if out.suffix not in ("", ".png"):
        raise DataError(f"{out}: a grid is written as .png, single images into a folder. Choose one of these.")
    generator = generators.load(_generator_file(source))
    noise = torch.randn(count, generator.plan.latent_dim, 1, 1, generator=torch.Generator().manual_seed(seed))
    images = draw(generator.plan, generator.average, noise)
    if out.suffix == ".png":
        write_whole(out, pictures.png(grid(images, columns=max(1, round(count**0.5)))))
        console.print(f"{count} images → {out}")
        return
    for index in range(count):
        write_whole(out / f"{index:05d}.png", pictures.png(grid(images[index : index + 1], columns=1)))
    console.print(f"{count} images → {out}/00000.png to {count - 1:05d}.png")


def _generator_file(source: str) -> Path:
    """Where this generator's file lies; fetched, if it comes from the hub or the database."""
    from deployments.commands.models import fetched
    from gan_core.exports import hub

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
        path = settings().outputs / source / FILE
        if not path.exists():
            known = sorted(p.parent.name for p in settings().outputs.glob("*/generator.safetensors"))
            raise DataError(
                f"There is no generator of {source!r}: {path} is missing. Generators here: {', '.join(known) or 'none yet'}."
            )
    return path


def open_with_bar(plan: Plan, cache: Path):
    """The plan's images; a bar shows the first use, which resizes them all."""
    from gan_core.data.images import open_images

    with Progress(
        TextColumn("preparing images"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)
        return open_images(
            plan.data,
            image_size=plan.image_size,
            channels=plan.channels,
            cache=cache,
            base=settings().data,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def train_here(plan: Plan, plain: bool, out: Path | None) -> None:
    """Train in this process; writes generator, grid and timeline."""
    import torch

    from gan_core import generators, pictures
    from gan_core.trainer import train_local, train_plain
    from gan_core.update import State

    if settings().threads:
        torch.set_num_threads(settings().threads)
    out = out or settings().outputs / "local"
    out.mkdir(parents=True, exist_ok=True)  # a place that can't be written must not cost the training
    images = open_with_bar(plan, settings().cache)
    grids: list[tuple[int, bytes]] = []
    started = time.monotonic()
    columns = (
        TextColumn("iteration"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=plan.iterations if not plan.epochs else None)

        def watch(state: State, measures: list[Measures]) -> None:
            rate = state.images / (time.monotonic() - started)
            losses = f" · loss G {measures[-1].g_loss:.2f} D {measures[-1].d_loss:.2f}" if measures else ""
            bar.update(task, completed=state.iteration, description=f"{state.images:,} images · {rate:,.0f}/s{losses}")
            if state.iteration % plan.sample_interval == 0:
                grids.append((state.iteration, pictures.sample_grid(plan, state.average)))

        state = (train_plain if plain else train_local)(plan, images, watch)
    generators.save(
        out / "generator.safetensors", generators.Generator(plan, state.average, state.iteration, state.images)
    )
    write_whole(out / "samples.png", pictures.sample_grid(plan, state.average))
    if grids:
        write_whole(out / "timeline.gif", pictures.timeline(grids))
    written = ", ".join(sorted(p.name for p in out.iterdir() if p.is_file()))
    console.print(f"{written} → {out}/", soft_wrap=True)
