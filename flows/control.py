"""Pause, resume, cancel or change a training from the Prefect UI."""

import logging
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from flows.train import Name
from gan_core.settings import settings
from tasks import control as verbs
from tasks.run_log import show_log

log = logging.getLogger("classgan.control")

AUTHOR = "the Prefect UI"


def _run_name() -> str:
    given = flow_run.parameters
    return f"{given.get('action') or 'change'} {given.get('name')}"


@flow(
    name="control",
    flow_run_name=_run_name,
    persist_result=False,
    description="Pauses, resumes, cancels or changes a training. `classgan pause`, `resume`, `cancel`, `change` do the same.",
)
def control(
    name: Name,
    action: Annotated[
        verbs.Action | None, Field(description="What to do. `cancel` is for good. Empty: only change the plan.")
    ] = None,
    changes: Annotated[
        dict[str, Any], Field(description='Knobs of the plan to change first, as in {"quorum": 3750}.')
    ] = {},  # noqa: B006  Prefect reads the default for its form; nobody changes it
) -> str:
    """Returns what will happen, in a sentence."""
    from gan_core.store.engine import connect

    show_log()
    said = []
    with connect(settings().database_url) as connection:
        if changes:
            said.append(verbs.change(connection, name, changes, AUTHOR))
        if action:
            said.append(
                {"pause": verbs.pause, "resume": verbs.resume, "cancel": verbs.cancel}[action](connection, name, AUTHOR)
            )
    log.info(" ".join(said) or "Nothing to do: name an action, or knobs to change.")
    return " ".join(said)
