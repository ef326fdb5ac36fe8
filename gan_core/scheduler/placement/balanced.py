"""Even load relative to capacity: all trainings would end at about the same time."""

from math import ceil

from gan_core.machines import Bid, Machine, Standing
from gan_core.units import counted


def balanced(machine: Machine, standing: Standing) -> Bid:
    """The training that would take longest, by the images it has left and the speed it has so far."""
    seconds = standing.wanted.images_left / standing.speed if standing.speed and standing.is_measured else None
    length = "how long isn't measured yet" if seconds is None else f"about {counted(ceil(seconds / 60), 'minute')}"
    return Bid(
        standing.speed / max(1, standing.wanted.images_left),
        f"with {counted(standing.workers, 'worker')} it would take longest; {length}",
    )
