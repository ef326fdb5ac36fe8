"""Even load relative to capacity: all trainings would end at about the same time."""

from gan_core.machines import Bid, Machine, Standing
from gan_core.units import counted


def balanced(machine: Machine, standing: Standing) -> Bid:
    """The training that would take longest, by the images it has left and the speed it has so far."""
    minutes = standing.wanted.images_left / standing.speed / 60 if standing.speed else float("inf")
    workers = counted(standing.workers, "worker")
    return Bid(
        standing.speed / max(1, standing.wanted.images_left),
        f"with {workers} it would take longest, {minutes:,.0f} minutes",
    )
