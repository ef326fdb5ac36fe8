"""How many images an iteration needs and how long it lasts: from what was measured of the machines, not from what a person guesses."""

import math

from gan_core.plan import Plan
from gan_core.store.coordinator.unit_queue import Pace

USUAL = 10.0  # seconds of a lease, where nothing was measured or nothing follows from it
BALANCED = 25.0  # seconds of an iteration that loses one: 96 % are computed
SHORTEST, LONGEST = 4.0, 300.0  # seconds


def quorum_for(plan: Plan, pace: Pace) -> tuple[int, float]:
    """Images that an iteration needs, and the seconds that its leases are sized for.

    With an automatic quorum the iteration closes after these seconds, and the images are what the machines compute until
    then; one of which nothing was measured begins with a unit.
    """
    seconds = seconds_for(plan, pace.lost)
    if plan.quorum != "auto":
        return plan.quorum, seconds
    expected = round(seconds * sum(speed or 0 for speed in pace.speeds))
    expected += plan.images_per_unit * sum(not speed for speed in pace.speeds)
    return max(plan.images_per_unit, expected), seconds


def seconds_for(plan: Plan, lost: float | None) -> float:
    """How long a lease, or an iteration that closes in time, shall take.

    What is lost costs the less, the longer an iteration is, and what machines walk apart from each other costs the more:
    lost / T + T / τ is least at T = √(lost · τ).

    Args:
        lost: seconds of an iteration in which the usual machine doesn't compute; None if nothing was measured.
    """
    if plan.target_seconds != "auto":
        return plan.target_seconds
    if plan.quorum != "auto" or lost is None:
        return USUAL
    return min(LONGEST, max(SHORTEST, BALANCED * math.sqrt(lost)))


def why_so_long(plan: Plan, pace: Pace) -> str:
    """For people: how long the next iteration will last, and why. Empty if that isn't for a clock to say."""
    if plan.quorum != "auto":
        return ""
    seconds = seconds_for(plan, pace.lost)
    if plan.target_seconds != "auto":
        return f"Its iterations last {seconds:g} s, as its plan says"
    if pace.lost is None:
        return f"Its first iterations last {seconds:g} s: how long transfers take is measured in them"
    limit = {SHORTEST: "; no shorter ones are made", LONGEST: "; no longer ones are made"}.get(seconds, "")
    return f"Its iterations last {seconds:.0f} s: its usual machine fetches, submits and waits for {pace.lost:.2f} s of each{limit}"
