"""Whether the classes of labelled images lie evenly: a step on images of one class teaches G to draw that class only."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gan_core.plan import Plan

if TYPE_CHECKING:
    from gan_core.data.images import ImageSet

UNEVEN = 0.25  # of the images that would have to be of another class, beyond what chance explains


def unevenness(labels: np.ndarray | None, sizes: Sequence[int]) -> float:
    """The largest share of a stretch's images that would have to be of another class, so that it held the data's classes.

    0.9 for ten classes in stretches of one class each; chance is taken off. 0 without labels.

    Args:
        sizes: of stretches of the images, one after the other; what they leave over isn't looked at.
    """
    if labels is None or not len(sizes):
        return 0.0
    _, number = np.unique(labels, return_inverse=True)
    shares = np.bincount(number) / len(number)
    ends = np.cumsum(sizes)
    found = []
    for start, end in zip(ends - sizes, ends, strict=True):
        here = np.bincount(number[start:end], minlength=len(shares)) / (end - start)
        chance = np.sqrt(shares * (1 - shares) / (2 * np.pi * (end - start))).sum()  # of a random draw
        found.append(abs(here - shares).sum() / 2 - chance)
    return max(0.0, *found)


def advice(plan: Plan, images: "ImageSet") -> str:
    """A warning in words if these images lie in the order of their classes, with what is done about it; "" if they don't."""
    labels, shards = images.labels, [shard.images for shard in images.shards]
    if plan.sampler == "sequential":
        units = len(images) // plan.images_per_unit
        if unevenness(labels, [plan.images_per_unit] * units) > UNEVEN:
            return (
                f"The images of {images.name} are in the order of their classes, and sampler=sequential keeps it: units "
                "hold few classes, and the samples will follow them. Choose sampler=shuffled or stratified."
            )
    elif plan.shards == "auto" and (share := unevenness(labels, shards)) > UNEVEN:
        return (
            f"The files of {images.name} are sorted by class: in one, {share:.0%} of the images would have to be of another "
            "class. So units are drawn from all files, as with shards=off, and a machine computes when it has all of them."
        )
    return ""
