"""A shift: the run that a student's machine picks up. Leases unit after unit until the work, the shift or the student ends."""

import os
import platform
from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run
from prefect.states import Failed, State
from pydantic import Field

from gan_core.errors import DeviceBroken, GanError
from gan_core.settings import settings
from tasks.background.shifts import OF
from tasks.run_log import show_log

BROKEN = "Broken"  # the state of a shift whose device has stopped working: a fresh process may use it again
HUNG_EXIT = 75  # what its process ends with if the device hangs: "try again later", EX_TEMPFAIL of sysexits.h


def _run_name() -> str:
    return f"{OF}{settings().worker_name or 'a worker'}"


@flow(
    name="gradient-compute",
    flow_run_name=_run_name,
    persist_result=False,
    description="One shift on a student's machine: lease units, compute, submit, again.",
)
def gradient_compute(
    max_minutes: Annotated[float, Field(gt=0, le=24 * 60, description="End the shift after about this long.")] = 60,
    idle_seconds: Annotated[
        float, Field(gt=0, le=24 * 3600, description="End it when there was nothing to do for this long.")
    ] = 60,
) -> int | State:
    """Work a shift; returns the images that were accepted, or why it couldn't go on."""
    import torch

    from gan_core.worker.shift import Shift

    show_log()
    mine = settings()
    if mine.threads:
        torch.set_num_threads(mine.threads)
    shift = Shift(
        mine.database_url,
        mine.worker_name or platform.node(),
        mine.device,
        mine.cache,
        mine.data,
        _asked_to_stop(),
        flow_run.id and UUID(str(flow_run.id)),
        on_hang=lambda: os._exit(HUNG_EXIT),
    )
    try:
        tally = shift.run(max_seconds=60 * max_minutes, idle_seconds=idle_seconds)
    except DeviceBroken as exc:
        return Failed(name=BROKEN, message=str(exc))
    except GanError as exc:
        return Failed(message=str(exc))
    create_markdown_artifact(
        key="shift", description="What this shift did", markdown=f"**{shift.name}**: {tally.sentence()}."
    )
    return tally.images


def _asked_to_stop() -> Callable[[], bool]:
    """Whether this machine's worker wants the shift to end: it wrote the stop file, or it is gone."""
    import psutil

    # By psutil: on Windows, the number of the parent stays after its end, and may become another's.
    stop_file, this = settings().stop_file, psutil.Process()
    parent = this.parent()
    return lambda: (stop_file is not None and stop_file.exists()) or this.parent() != parent
