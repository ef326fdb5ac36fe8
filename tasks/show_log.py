"""Let a run's own messages appear in its terminal too; Prefect alone would only send them to the server."""

import logging
import sys


def show_log() -> None:
    """Print what `classgan` logs, once, in one line each."""
    logger = logging.getLogger("classgan")
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, logging.StreamHandler) for handler in logger.handlers):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
