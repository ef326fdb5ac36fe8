"""Show a run's log in the terminal and in the Prefect UI: our own lines, and an error of ours as its sentence alone."""

import logging

from prefect.exceptions import FailedRun
from rich.console import Console

from gan_core.errors import GanError


def show_log() -> None:
    """Let what `classgan` logs through, and leave out where in the code an error arose that says itself what to do."""
    logging.getLogger("classgan").setLevel(logging.INFO)
    for name in ("prefect.flow_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_sentence_alone)
    Console.on_broken_pipe = _fall_silent


def _fall_silent(self: Console) -> None:
    """The worker that read this output is gone: rich would end the run with the next line. Prefect's UI has the lines as well."""
    self.quiet = True


def _sentence_alone(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], GanError | FailedRun):
        record.exc_info = None
    return True
