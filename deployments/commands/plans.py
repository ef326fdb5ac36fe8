"""Plans on the command line: presets, --set, and the table of knobs."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gan_core.errors import PlanError
from gan_core.plan import Plan, preset


def plan_from(name: str, changes: Sequence[str] | None) -> Plan:
    """The preset with these KEY=VALUE changes. Raises PlanError with a sentence about each fault."""
    return preset(name).changed(**changes_from(changes or ()))


def changes_from(changes: Sequence[str]) -> dict[str, Any]:
    """Knobs and values of these KEY=VALUE texts. Raises PlanError for what is no KEY=VALUE, or no knob."""
    values: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise PlanError(f"--set {change!r} is not KEY=VALUE, for example --set iterations=50.")
        if key not in Plan.model_fields:
            raise PlanError(f"A plan has no knob {key!r}. `classgan plan` lists all of them.")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
    return values


def print_plan(plan: Plan) -> None:
    """Every knob: value, limits, meaning."""
    table = Table("knob", "value", "limits", "meaning")
    properties = Plan.model_json_schema()["properties"]
    for name, value in plan.model_dump().items():
        table.add_row(name, str(value), limits(properties[name]), properties[name].get("description", ""))
    Console().print(table)


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
