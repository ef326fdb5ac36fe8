"""Rewrites the pages that follow from the code: `python docs/generate.py`. tests/house/test_docs.py fails when one is old."""

import re
from pathlib import Path
from typing import Any

import typer

from deployments.cli import app
from deployments.cli.trainings.plans import limits
from gan_core.plan import FIXED, Plan
from gan_core.presets import PRESETS
from gan_core.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100  # characters of a line of help; the reader's terminal must not change the page

CLI = """\
# Commands

Made from `--help` by `python docs/generate.py`. Our own errors are one sentence, a line that says where to read on, and exit code 1.
"""

PLAN = """\
# The plan

Every knob of one training. Made from `gan_core/plan.py` by `python docs/generate.py`. The Prefect UI shows the same as a form,
`classgan plan` prints it, and `--set KEY=VALUE` changes a knob on the command line.

`demo` draws digits in minutes on a small machine. `dcgan` is the classic network for 64x64 colour images with averaged gradients.
`better` is the same size with spectral norm, hinge loss and local steps. Each is a column below.

The knobs marked † can change while a training runs or is paused, from its next iteration on: `classgan change NAME --set KEY=VALUE`, the
deployment `control` in the Prefect UI, or `train` started again with the new value. Data and model are what a training is; changing them is refused with a sentence.
"""

SETTINGS = """\
# Settings: what differs from machine to machine. Made from gan_core/settings.py by `python docs/generate.py`.
# No file is read by itself. To use this one: copy it to .env, take the # off the lines you change, and run
#   set -a; . ./.env; set +a
"""


def cli_page() -> str:
    """docs/cli.md"""
    program = typer.main.get_command(app)
    context = program.make_context(
        "classgan", [], resilient_parsing=True, terminal_width=WIDTH, max_content_width=WIDTH
    )
    sections = [("classgan", _overview(program, context)), *_sections("classgan", program, context)]
    return CLI + "".join(f"\n## {title}\n\n```text\n{text}\n```\n" for title, text in sections)


def _overview(program: Any, context: Any) -> str:
    """The commands under the headings of `classgan --help`, each with its whole sentence."""
    lines = [_help(program, context).partition("\nCommands:")[0].rstrip()]
    panel = None
    for name, command in program.commands.items():
        if command.rich_help_panel != panel:
            panel = command.rich_help_panel
            lines += ["", f"{panel}:"]
        lines.append(f"  {name:<14} {(command.help or '').splitlines()[0]}")
    return "\n".join(lines)


def _sections(path: str, group: Any, context: Any) -> list[tuple[str, str]]:
    """(command, help) of everything below a group."""
    sections = []
    for name, command in group.commands.items():
        inner = command.make_context(name, [], context, resilient_parsing=True)
        sections.append((f"{path} {name}", _help(command, inner)))
        if hasattr(command, "commands"):
            sections += _sections(f"{path} {name}", command, inner)
    return sections


def _help(command: Any, context: Any) -> str:
    command.rich_markup_mode = None  # plain text instead of boxes
    return re.sub(r"\[/?bold\]", "", command.get_help(context)).strip()


def plan_page() -> str:
    """docs/plan.md"""
    rows = [
        "| knob | " + " | ".join(f"`{name}`" for name in PRESETS) + " | limits | meaning |",
        "|---" * (3 + len(PRESETS)) + "|",
    ]
    for name, schema in Plan.model_json_schema()["properties"].items():
        mark = " †" if name not in FIXED else ""
        values = [_shown(getattr(plan, name)) for plan in PRESETS.values()]
        rows.append(f"| `{name}`{mark} | {' | '.join(values)} | {limits(schema)} | {schema['description']} |")
    return f"{PLAN}\n" + "\n".join(rows) + "\n"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def settings_page() -> str:
    """.env.example"""
    pieces = [SETTINGS]
    for name, field in Settings.model_fields.items():
        bounds = limits(Settings.model_json_schema()["properties"][name]).strip(" or")
        pieces.append(
            f"\n# {field.description}{f' ({bounds})' if bounds else ''}\n#CLASSGAN_{name.upper()}={_default(field.default)}\n"
        )
    return "".join(pieces)


def _default(value: object) -> str:
    return "" if value is None else str(value)


PAGES = {ROOT / "docs/cli.md": cli_page, ROOT / "docs/plan.md": plan_page, ROOT / ".env.example": settings_page}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
