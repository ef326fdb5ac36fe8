"""Options that several commands share."""

from typing import Annotated

import typer

PlanOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one knob of the plan; may be repeated. `classgan plan` lists them.",
    ),
]
PresetOption = Annotated[str, typer.Option("--preset", help="Plan to start from: demo, dcgan or better.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON, for a program.")]
