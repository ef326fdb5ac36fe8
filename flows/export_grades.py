"""Write every student's work and mark as files, from the ledger."""

from typing import Annotated

from prefect import flow
from pydantic import Field

from gan_core.settings import settings
from tasks.export_grades import write_grades


@flow(
    name="export-grades",
    flow_run_name="export grades",
    persist_result=False,
    description="Writes every student's work and mark: a table, or files for every gradebook.",
)
def export_grades(
    path: Annotated[
        str,
        Field(
            description="A .csv or .xlsx file for the table, or a folder for every format. Empty: grades.csv in the outputs folder."
        ),
    ] = "",
    rubric: Annotated[str, Field(description="Rubric, a YAML file on this machine. Empty: the default.")] = "",
) -> str:
    """Write the files; returns the path."""
    target = path or str(settings().outputs / "grades.csv")
    write_grades(target, rubric)
    return target
