"""Let a run's own messages through: Prefect hands on what `classgan` logs, but only if the level lets it."""

import logging


def show_log() -> None:
    """Show what `classgan` logs, in the terminal and in the Prefect UI."""
    logging.getLogger("classgan").setLevel(logging.INFO)
