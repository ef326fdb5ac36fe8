"""Write the ledger as a table."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.settings import settings


@task(task_run_name="export grades", cache_policy=NO_CACHE, persist_result=False)
def write_grades(path: str) -> int:
    """Write every student's credit to this CSV file, whole or not at all; returns the number of students."""
    from gan_core.exports import grades
    from gan_core.store import ledger
    from gan_core.store.engine import connect

    with connect(settings().database_url) as connection:
        credits = ledger.credits(connection)
    grades.write_csv(Path(path), credits)
    return len(credits)
