"""`classgan export-grades`: work and marks as files, and how a mark came about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from deployments.cli.output import console, show
from deployments.cli.tables import Listing
from gan_core.errors import RubricError, TrainingError
from gan_core.files import write_private
from gan_core.units import counted

if TYPE_CHECKING:
    from gan_core.exports.grades import Row
    from gan_core.exports.rubric import Rubric

commands = typer.Typer()


@commands.command("export-grades")
def export_grades(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A .csv or .xlsx file, or a folder. Default: grades.csv in outputs, or the folder grades there if "
            "--format isn't csv.",
        ),
    ] = None,
    kind: Annotated[
        Literal["csv", "xlsx", "canvas", "moodle", "nbgrader", "all"] | None,
        typer.Option(
            "--format", "-f", help="Format or gradebook. Default: the full table for a file, all formats for a folder."
        ),
    ] = None,
    rubric: Annotated[
        Path | None, typer.Option("--rubric", exists=True, dir_okay=False, help="How work becomes a mark: a YAML file.")
    ] = None,
    explain: Annotated[
        str, typer.Option(metavar="STUDENT", help="Show how this login's mark came about; writes nothing.")
    ] = "",
    write_rubric: Annotated[
        Path | None, typer.Option(help="Write the default rubric to this file, for you to edit.")
    ] = None,
) -> None:
    """Write every student's work and mark: a table, and files for Canvas, Moodle and nbgrader."""
    if write_rubric is not None:
        write_default_rubric(write_rubric)
    elif explain:
        explain_mark(explain, rubric)
    else:
        write_grades(out, kind, rubric)


def write_grades(out: Path | None, kind: str | None, rubric_file: Path | None) -> None:
    """Write one table, or gradebook files into a folder.

    Raises:
        RubricError: the rubric, or a format and a file that don't go together.
    """
    from gan_core.exports import gradebooks, grades, rubric
    from gan_core.settings import settings

    single = out.suffix.lower().removeprefix(".") if out else ""
    if single in grades.TABLES and kind not in (None, single):
        raise RubricError(
            f"{out} is a {single} table, and --format is {kind}. Name a folder with --out, or leave --format out."
        )
    if out is None:
        out = settings().outputs / ("grades.csv" if kind in (None, "csv") else "grades")
    kinds = tuple(grades.FORMATS) if kind in (None, "all") else (kind,)
    rules = rubric.read(rubric_file)
    rows = _rows(rules)
    files = grades.write_all(out, rows, rules, kinds)
    console.print(f"{counted(len(rows), 'student')} → {escape(', '.join(map(str, files.values())))}", soft_wrap=True)
    for remark in gradebooks.remarks(files, rows, rules):
        console.print(escape(remark), soft_wrap=True)


def write_default_rubric(path: Path) -> None:
    """The default rubric as a file to edit.

    Raises:
        RubricError: there is a file already.
    """
    from gan_core.exports import rubric

    if path.exists():
        raise RubricError(f"{path} exists, and may have been edited. Name another file, or move it away.")
    write_private(path, rubric.default_text().encode())
    console.print(f"The default rubric → {path}. Edit it, then: classgan export-grades --rubric {path}", soft_wrap=True)


def explain_mark(login: str, rubric_file: Path | None) -> None:
    """How one student's mark came about, line by line.

    Raises:
        TrainingError: there is no such student.
    """
    from gan_core.exports import rubric

    rules = rubric.read(rubric_file)
    rows = {one.login: (one, mark) for one, mark in _rows(rules)}
    if login not in rows:
        raise TrainingError(f"There is no student with the login {login!r}. Students: {', '.join(rows) or 'none yet'}.")
    one, mark = rows[login]
    table = Listing("part", "measured", "in full from", "share", "brings at most", "points")
    for line in mark.lines:
        table.add(
            line.name,
            f"{line.value:.4f}",
            f"{line.full_at:g}",
            f"{line.share:.2f}",
            f"{line.of * rules.cap:.2f}",
            f"{line.points:.2f}",
        )
    table.add("mark", "", "", "", f"{rules.points:g}", f"{mark.points:.2f}")
    console.print(f"{escape(one.display_name)} ({one.login}), rank {one.rank}")
    show(table)
    unit = "hours of a usual device of the kind" if rules.normalise else "100,000 images"
    for sentence in (
        f"work: {counted(one.images, 'image')} in {counted(one.credited, 'credited contribution')}, with {one.devices or 'nothing'}; measured in {unit}.",
        f"consistency: work on {counted(one.active_days, 'day')}; 0 is all of it in one {rules.period}, 1 as much in each {rules.period} of the class.",
        f"timeliness: {one.in_time:,} in time, {one.credited - one.in_time:,} after the due moment, {one.late:,} too late for credit.",
        f"quality: {one.rejected:,} of {counted(one.answers, 'contribution')} rejected; {one.checked:,} {'was' if one.checked == 1 else 'were'} checked, {one.invalid:,} invalid.",
        "All but work count as far as there is work (share). Rounded once at the end; the lines add up.",
    ):
        console.print(sentence, soft_wrap=True)
    if one.suspended:
        console.print(f"Shut out: {escape(one.suspended)}", soft_wrap=True)


def _rows(rules: Rubric) -> list[Row]:
    from deployments.local.database import database_url
    from gan_core.exports import grades
    from gan_core.store.engine import connect

    with database_url() as url, connect(url) as connection:
        return grades.rows_of(connection, rules)
