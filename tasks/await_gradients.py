"""Wait until enough contributions are there, or the deadline."""

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.errors import Finished

if TYPE_CHECKING:
    from gan_core.coordinator.coordinator import Coordinator
    from gan_core.coordinator.round import Gathered


@task(task_run_name="await-gradients it {number}", cache_policy=NO_CACHE, persist_result=False)
def await_gradients(training: "Coordinator", number: int) -> "Gathered | Finished":
    """Which contributions iteration `number` closes with: ids, no tensors. Finished, if a person paused or cancelled
    the training: returned, since nothing went wrong.
    """
    try:
        return training.gather()
    except Finished as exc:
        return exc
