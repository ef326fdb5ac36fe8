"""Recomputes a lease, and says whether what somebody claims may be its honest contribution."""

from collections.abc import Sequence

import torch

from gan_core.data.images import ImageSet
from gan_core.layout import PARTS, Vectors
from gan_core.networks.gradients import Beat, contribute
from gan_core.networks.models import Networks, layout_of
from gan_core.plan import Plan
from gan_core.policies.codecs import decode, encode
from gan_core.policies.validation import Finding, Track, alike, judge
from gan_core.units import WorkUnit


def recompute(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    blurred: bool = False,
    on_batch: Beat = lambda: None,
) -> tuple[Vectors, Track]:
    """A lease's contribution, and the way to it.

    Args:
        blurred: rounded to bfloat16 wherever PyTorch can: further off than any honest device.
        on_batch: called after each batch.
    """
    points: list[Vectors] = []
    # Without the cache: it would go on computing with the weights before the first step.
    with torch.autocast(networks.device.type, torch.bfloat16, enabled=blurred, cache_enabled=False):
        vectors, _ = contribute(
            plan, networks, images, units, weights, on_batch, see=lambda _, point: points.append(point)
        )
    return vectors, Track(points)


def exact(plan: Plan) -> Plan:
    """The plan as whoever judges others computes it: in float32.

    On a GPU with bfloat16, a plan's mixed precision would make the recomputation its own twin, and any other rounding a fault.
    """
    return plan.model_copy(update={"precision": "float32"})


def check(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    claimed: Vectors,
    on_batch: Beat = lambda: None,
) -> Finding:
    """Whether this may be the honest contribution of a lease. The blurred twin is only computed before an accusation."""
    plan = exact(plan)
    layout = layout_of(plan)
    ours, path = recompute(plan, networks, images, units, weights, on_batch=on_batch)
    likeness = alike(unrounded(plan, units, claimed, ours), path, layout)
    finding = judge(likeness)
    if finding.valid:
        return finding
    twin, _ = recompute(plan, networks, images, units, weights, blurred=True, on_batch=on_batch)
    return judge(likeness, alike(unrounded(plan, units, sent(plan, units, twin), ours), path, layout))


def sent(plan: Plan, units: Sequence[WorkUnit], vectors: Vectors) -> Vectors:
    """What arrives of a lease's contribution: rounded by the plan's codec."""
    layout = layout_of(plan)
    return decode(encode(vectors, layout, plan.codec, units[0].seed), layout, plan.codec)


def unrounded(plan: Plan, units: Sequence[WorkUnit], claimed: Vectors, ours: Vectors) -> Vectors:
    """What arrived, without what the codec rounds off of our own result.

    A few bits a number round off more than devices differ by. But theirs was rounded with the same random numbers, and
    nearly all of it the same way.
    """
    rounded = sent(plan, units, ours)
    return Vectors(*(claimed.part(part) - (rounded.part(part) - ours.part(part)) for part in PARTS))
