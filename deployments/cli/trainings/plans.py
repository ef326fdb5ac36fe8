"""`classgan plan`, `train-local` and `replay`: plans on the command line, and a training in this one process."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from deployments.cli.options import PlanOption, PresetOption
from deployments.cli.output import console, open_with_bar, show
from deployments.cli.tables import Listing
from gan_core.errors import PlanError, SettingsError
from gan_core.files import write_whole
from gan_core.units import Measures

if TYPE_CHECKING:
    from gan_core.plan import Plan

commands = typer.Typer()


@commands.command("train-local")
def train_local(
    preset: PresetOption = "demo",
    changes: PlanOption = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Use the ordinary training loop: one Adam optimiser for the whole training, no units."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the generator and its pictures. Default: outputs/local."),
    ] = None,
) -> None:
    """Train alone, in this one process, on the CPU. Its result is the reference that a class must equal."""
    train_here(plan_from(preset, changes), plain, out)


@commands.command()
def replay(name: Annotated[str, typer.Argument(help="The training's name.")]) -> None:
    """Compute a class's whole training again, alone, from what was handed out to whom: does it lead to the same weights?

    Bit for bit the same with codec float32, machines of one kind, and as many threads as they had (CLASSGAN_THREADS); otherwise the
    distance is said. It takes as long as all machines together computed.
    """
    from deployments.local.database import database_url
    from gan_core.coordinator.replay import replay
    from gan_core.data.images import require_same_data
    from gan_core.plan import checked_plan
    from gan_core.settings import settings
    from gan_core.store.coordinator import trainings
    from gan_core.store.engine import connect

    _use_threads()
    with database_url() as url, connect(url) as connection:
        row = trainings.get(connection, name)
        images = open_with_bar(checked_plan(row.plan), settings().cache, row.data_fingerprint)
        if row.data_fingerprint:  # else it never began, which is said below
            require_same_data(images, row.data_fingerprint, len(images))
        with Progress(
            TextColumn("iteration"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        ) as bar:
            task = bar.add_task("", total=None)
            done = replay(connection, name, images, lambda number, all_: bar.update(task, completed=number, total=all_))
    same = (
        "the very same, bit for bit"
        if not done.distance
        else f"nearly the same: they differ by {done.distance:.2g} of their length"
    )
    console.print(
        f"{name} again, {done.iteration:,} iterations of {done.images:,} images: the class's weights and these are {same}.",
        soft_wrap=True,
    )


@commands.command()
def plan(preset: PresetOption = "demo", changes: PlanOption = None) -> None:
    """Show every knob of a plan: value, limits, meaning."""
    print_plan(plan_from(preset, changes))


def plan_from(name: str, changes: Sequence[str] | None) -> Plan:
    """The preset with these KEY=VALUE changes. Raises PlanError with a sentence about each fault."""
    from gan_core.presets import preset

    return preset(name).changed(**changes_from(changes or ()))


def changes_from(changes: Sequence[str]) -> dict[str, Any]:
    """Knobs and values of these KEY=VALUE texts, unchecked. Raises PlanError for what is no KEY=VALUE."""
    if wrong := [change for change in changes if "=" not in change]:
        raise PlanError(f"--set {', '.join(map(repr, wrong))} is not KEY=VALUE, for example --set iterations=50.")
    return {key: _value(text) for key, _, text in (change.partition("=") for change in changes)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def print_plan(plan: Plan) -> None:
    """Every knob: value, limits, meaning."""
    from gan_core.plan import Plan

    table = Listing("knob", "value", "limits", "meaning", folds=["limits", "meaning"])
    properties = Plan.model_json_schema()["properties"]
    for name, value in plan.model_dump().items():
        table.add(name, str(value), limits(properties[name]), properties[name].get("description", ""))
    show(table)


def limits(schema: dict[str, Any]) -> str:
    """A field's bounds or choices, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(limits(choice) for choice in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    low = (
        f"≥ {schema['minimum']:,}"
        if "minimum" in schema
        else f"> {schema['exclusiveMinimum']:,}"
        if "exclusiveMinimum" in schema
        else ""
    )
    high = (
        f"≤ {schema['maximum']:,}"
        if "maximum" in schema
        else f"< {schema['exclusiveMaximum']:,}"
        if "exclusiveMaximum" in schema
        else ""
    )
    return ", ".join(filter(None, (low, high)))


def _use_threads() -> None:
    import torch

    from gan_core.settings import settings

    if settings().threads:
        torch.set_num_threads(settings().threads)


def train_here(plan: Plan, plain: bool, out: Path | None) -> None:
    """Train in this process; writes generator, grid and timeline."""
    from gan_core.data.images import advice
    from gan_core.networks import generators
    from gan_core.networks.reference import train_local, train_plain
    from gan_core.networks.update import State
    from gan_core.quality import pictures
    from gan_core.settings import settings

    if (device := settings().device) not in ("", "cpu"):
        raise SettingsError(
            f"CLASSGAN_DEVICE is {device!r}, and train-local computes on the CPU: its result is the reference for a class. "
            "Leave the setting out, or set it to cpu. To train on other devices, start a class."
        )
    _use_threads()
    out = out or settings().outputs / "local"
    out.mkdir(parents=True, exist_ok=True)  # a place that can't be written must not cost the training
    images = open_with_bar(plan, settings().cache)
    if warning := advice(plan, images):
        console.print(warning, style="yellow", markup=False)
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
        out / "generator.safetensors", generators.finished(plan, state.average, state.iteration, state.images)
    )
    write_whole(out / "samples.png", pictures.sample_grid(plan, state.average))
    if grids:
        write_whole(out / "timeline.gif", pictures.timeline(grids))
    written = ", ".join(sorted(p.name for p in out.iterdir() if p.is_file()))
    console.print(f"{written} → {out}/", soft_wrap=True)
