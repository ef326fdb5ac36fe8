"""Combine contributions, take the step, publish the next weights."""

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

if TYPE_CHECKING:
    from gan_core.coordinator.coordinator import Coordinator
    from gan_core.coordinator.round import Gathered


@task(task_run_name="aggregate it {number}", cache_policy=NO_CACHE, persist_result=False)
def aggregate(training: "Coordinator", number: int, gathered: "Gathered") -> None:
    """Publish the weights that iteration `number` leads to: all of it or nothing."""
    training.publish(gathered)
