"""Share by owner: everybody has as much of the class as everybody else, however many trainings they run."""

from gan_core.machines import Bid, Machine, Standing


def fair(machine: Machine, standing: Standing) -> Bid:
    """The owner with the least, now and over the last hours together; that owner's slowest training."""
    owner = standing.wanted.owner or "its owner"
    share = standing.owner_share + standing.owner_used
    within = standing.speed / (standing.speed + max(1, standing.wanted.images_left))  # below 1: only among one's own
    return Bid(
        share + 1e-6 * within,
        f"{owner} has the smallest share: {standing.owner_share:.0%} now, {standing.owner_used:.0%} lately",
    )
