"""Commands about trainings: what a person says to them, what came of them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from deployments.cli.options import PlanOption, PresetOption

trainings = typer.Typer()

NameArgument = Annotated[str, typer.Argument(help="The training's name.")]


@trainings.command()
def pause(name: NameArgument) -> None:
    """Hand nothing out any more; units that are out are still accepted. `classgan resume` goes on."""
    from deployments.commands.controls import pause_training

    pause_training(name)


@trainings.command()
def resume(name: NameArgument) -> None:
    """Go on with a training that was paused, that failed, or whose coordinator is gone, exactly where it stood."""
    from deployments.commands.controls import resume_training

    resume_training(name)


@trainings.command()
def cancel(name: NameArgument) -> None:
    """End a training for good. Credit, samples and the generator stay."""
    from deployments.commands.controls import cancel_training

    cancel_training(name)


@trainings.command()
def change(name: NameArgument, changes: PlanOption = None) -> None:
    """Change the plan of a training from its next iteration on: learning rates, quorum, intervals; not data or model."""
    from deployments.commands.controls import change_training

    change_training(name, changes or [])


@trainings.command()
def alarm(
    url: Annotated[
        str,
        typer.Argument(
            help="Webhook of Slack, Mattermost, Teams or your own. Left out: the alarm is taken away.",
            show_default=False,
        ),
    ] = "",
    minutes: Annotated[float, typer.Option(min=1, max=24 * 60, help="How long a training may stand still.")] = 10,
) -> None:
    """Let Prefect call a webhook when a training stops moving although nobody paused or ended it."""
    from deployments.commands.controls import set_alarm

    set_alarm(url, minutes)


@trainings.command()
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
    from deployments.commands.reports import generate_images

    if bool(source) == bool(origin):
        raise typer.BadParameter("Name one generator: a file, a training, model:NAME, or hub:OWNER/REPO.")
    generate_images(source or origin, count, out, seed)


@trainings.command()
def push(
    name: Annotated[str, typer.Argument(help="The training's name.", show_default=False)] = "",
    repo: Annotated[
        str, typer.Option(metavar="OWNER/REPO", help="Repository on the hub; left out: the one in the training's plan.")
    ] = "",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only try whether it would work: library, token, and with --repo the right to write."
        ),
    ] = False,
) -> None:
    """Push a training's newest generator to the Hugging Face Hub, with model card and pictures, in one commit."""
    from deployments.commands.hub import check_hub, push_training

    if not check and not name:
        raise typer.BadParameter("Name a training, or try the hub with --check.")
    check_hub(repo) if check else push_training(name, repo)


@trainings.command("train-local")
def train_local(
    preset: PresetOption = "demo",
    changes: PlanOption = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="The ordinary loop: one Adam for the whole training, no units.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the generator and its pictures; left out, outputs/local."),
    ] = None,
) -> None:
    """Train in this one process: the reference that a class must equal, and the way to train alone."""
    from deployments.commands.plans import plan_from
    from deployments.commands.reports import train_here

    train_here(plan_from(preset, changes), plain, out)


@trainings.command()
def plan(preset: PresetOption = "demo", changes: PlanOption = None) -> None:
    """Show every knob of a plan: value, limits, meaning."""
    from deployments.commands.plans import plan_from, print_plan

    print_plan(plan_from(preset, changes))


@trainings.command("export-grades")
def export_grades(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .csv or .xlsx file, or a folder. Left out: grades.csv, or grades/, in outputs."
        ),
    ] = None,
    kind: Annotated[
        Literal["csv", "xlsx", "canvas", "moodle", "nbgrader", "all"] | None,
        typer.Option("--format", "-f", help="For whom. Left out: the full table as CSV, or all of them into a folder."),
    ] = None,
    rubric: Annotated[
        Path | None, typer.Option("--rubric", exists=True, dir_okay=False, help="How work becomes a mark: a YAML file.")
    ] = None,
    explain: Annotated[
        str, typer.Option(metavar="STUDENT", help="Show how this login's mark came about; writes nothing.")
    ] = "",
    write_rubric: Annotated[Path | None, typer.Option(help="Write the default rubric there, to be edited.")] = None,
) -> None:
    """Write every student's work and mark: a table, and files for Canvas, Moodle and nbgrader."""
    from deployments.commands import grades

    if write_rubric is not None:
        grades.write_rubric(write_rubric)
    elif explain:
        grades.explain(explain, rubric)
    else:
        grades.export(out, kind, rubric)
