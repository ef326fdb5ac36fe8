"""Write everybody's work and mark as files."""

import logging
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.settings import settings

log = logging.getLogger("classgan.grades")


@task(task_run_name="export grades", cache_policy=NO_CACHE, persist_result=False)
def write_grades(path: str, rubric_file: str = "") -> int:
    """Write the full table to this .csv file, or every format into this folder; returns the number of students."""
    from gan_core.exports import gradebooks, grades, rubric
    from gan_core.store.engine import connect

    rules = rubric.read(Path(rubric_file) if rubric_file else None)
    with connect(settings().database_url) as connection:
        rows = grades.rows_of(connection, rules)
    files = grades.write_all(Path(path), rows, rules)
    for remark in gradebooks.remarks(files, rows, rules):
        log.warning("%s", remark)
    return len(rows)
