"""Pause, resume, cancel or change a training when a person asks for it. Each answers that person with a sentence."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from gan_core.errors import TrainingError
from gan_core.plan import checked_plan
from gan_core.units import TrainingState

if TYPE_CHECKING:
    from psycopg import Connection

Action = Literal["pause", "resume", "cancel"]
TRAIN = "train/train"


def pause(connection: "Connection", name: str, author: str) -> str:
    """Hand nothing out any more; the iteration at hand ends if the units that are out come in."""
    from gan_core.store.coordinator import trainings

    row = trainings.get(connection, name)
    message = f"paused by {author}; `classgan resume {name}` goes on"
    was = trainings.control(connection, row.id, TrainingState.PAUSED, author, message)
    if was in (TrainingState.QUEUED, TrainingState.LAUNCHING, TrainingState.RUNNING):
        return f"{name} pauses: units that are out are still accepted. `classgan resume {name}` goes on."
    raise TrainingError(f"{name!r} is {was}, so there is nothing to pause.")


def cancel(connection: "Connection", name: str, author: str) -> str:
    """End a training for good. What was computed stays credited, what was drawn stays."""
    from gan_core.store.coordinator import trainings

    row = trainings.get(connection, name)
    was = trainings.control(connection, row.id, TrainingState.CANCELLED, author, f"cancelled by {author}")
    if was in (TrainingState.SUCCEEDED, TrainingState.CANCELLED):
        raise TrainingError(f"{name!r} is {was} already.")
    last = " or the one at hand, if its units come in" if was is TrainingState.RUNNING else ""
    return f"{name} is cancelled for good, after iteration {row.iteration}{last}. Credit and samples stay."


def resume(connection: "Connection", name: str, author: str) -> str:
    """Ask Prefect to run `train` for it again; it continues where it stood.

    Raises:
        TrainingError: it runs, or was cancelled.
    """
    from prefect.deployments import run_deployment

    from gan_core.status.summary import RESUMED
    from gan_core.store.coordinator import trainings
    from gan_core.store.scheduler import submissions
    from gan_core.store.viewers import ledger

    row = trainings.get(connection, name)
    view = ledger.overview(connection, name)
    assert view is not None
    if row.state is TrainingState.CANCELLED:
        raise TrainingError(f"{name!r} was cancelled for good. Start a training with another name.")
    if view.is_led and row.state in (TrainingState.LAUNCHING, TrainingState.RUNNING):
        raise TrainingError(f"{name!r} is {row.state} already; `classgan status {name}` says what it is doing.")
    # Prefect first: if it doesn't answer, nothing was changed.
    run_deployment(TRAIN, parameters={"name": name, "plan": row.given or row.plan}, timeout=0, as_subflow=False)
    trainings.control(connection, row.id, TrainingState.QUEUED, author, RESUMED)
    submissions.call(connection, [row.id])  # the queue need not start it a second time
    return f"{name} goes on from iteration {row.iteration} as soon as the instructor's worker has started it."


def requeue(connection: "Connection", name: str, author: str) -> str:
    """Put a paused, failed or finished training back into the queue, which starts it when its turn comes.

    Raises:
        TrainingError: it runs or waits already, or was cancelled.
    """
    from gan_core.store.coordinator import trainings

    row = trainings.get(connection, name)
    was = trainings.control(connection, row.id, TrainingState.QUEUED, author, "waits for its turn")
    if was is TrainingState.CANCELLED:
        raise TrainingError(f"{name!r} was cancelled for good. Start a training with another name.")
    if was in (TrainingState.QUEUED, TrainingState.LAUNCHING, TrainingState.RUNNING):
        raise TrainingError(f"{name!r} is {was} already.")
    return f"{name} waits for its turn and goes on from iteration {row.iteration}."


def change(connection: "Connection", name: str, changes: Mapping[str, Any], author: str) -> str:
    """Change the plan from the next iteration on.

    Raises:
        PlanError: a value is impossible; nothing was changed.
        TrainingError: data or model would change, or the training is over.
    """
    from gan_core.store.coordinator import trainings

    row = trainings.get(connection, name)
    if row.state is TrainingState.CANCELLED:
        raise TrainingError(f"{name!r} was cancelled for good.")
    now = checked_plan(row.wanted or row.plan)
    wanted = now.changed(**changes)
    if fixed := now.conflicts_with(wanted):
        raise TrainingError(
            f"{', '.join(fixed)} can't change once a training has begun: another data set or model is another training. Start one with another name."
        )
    if not (said := now.differences(wanted)):
        return f"{name} has these values already."
    trainings.want_plan(connection, row.id, wanted.model_dump(mode="json"), author)
    return f"{name}, from its next iteration on: {said}."
