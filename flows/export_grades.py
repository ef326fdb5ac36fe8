"""Ledger → grade sheet."""

from typing import Annotated

from prefect import flow
from pydantic import Field

from gan_core.settings import settings
from tasks.export_grades import write_grades


@flow(
    name="export-grades",
    flow_run_name="export grades",
    persist_result=False,
    description="Writes every student's credit to a CSV file.",
)
def export_grades(
    path: Annotated[str, Field(description="CSV file to write. Empty: grades.csv in the outputs folder.")] = "",
) -> str:
    """Write the table; returns the file's path."""
    target = path or str(settings().outputs / "grades.csv")
    write_grades(target)
    return target
