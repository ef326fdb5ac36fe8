"""Cut the next slices of the epoch's order into units and hand them out."""

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

if TYPE_CHECKING:
    from gan_core.coordinator.coordinator import Coordinator


@task(task_run_name="create-units it {number}", cache_policy=NO_CACHE, persist_result=False)
def create_units(training: "Coordinator", number: int) -> int:
    """Open iteration `number`. Returns how many units it has. Run twice, it changes nothing."""
    return training.create_units()
