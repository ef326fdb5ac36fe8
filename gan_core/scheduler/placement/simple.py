"""Least waste: a machine goes where most of it is used."""

from gan_core.machines import Bid, Machine, Standing, waste


def simple(machine: Machine, standing: Standing) -> Bid:
    """The tightest fit; among equals the first in the queue, which takes all it may have."""
    spare = waste(machine, standing.wanted)
    return Bid(spare, f"the tightest fit, {spare:.0%} of it would be spare")
