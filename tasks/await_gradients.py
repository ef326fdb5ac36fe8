"""Wait until enough contributions are there, or the deadline."""

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

if TYPE_CHECKING:
    from gan_core.coordinator import Coordinator, Gathered


@task(task_run_name="await-gradients it {number}", cache_policy=NO_CACHE, persist_result=False)
def await_gradients(training: "Coordinator", number: int) -> "Gathered":
    """Which contributions iteration `number` closes with: ids, no tensors.

    Raises:
        Finished: a person paused or cancelled the training.
    """
    return training.gather()
