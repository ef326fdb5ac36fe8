"""Show a run's log in the terminal and in the Prefect UI: our own lines, and an error of ours as its sentence alone."""

import logging

from prefect.exceptions import FailedRun

from gan_core.errors import GanError


def show_log() -> None:
    """Let what `classgan` logs through, and leave out where in the code an error arose that says itself what to do."""
    logging.getLogger("classgan").setLevel(logging.INFO)
    for name in ("prefect.flow_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_sentence_alone)


def _sentence_alone(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], GanError | FailedRun):
        record.exc_info = None
    return True
