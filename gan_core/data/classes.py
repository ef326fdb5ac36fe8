"""Whether the classes of labelled images lie evenly: a step on images of one class teaches G to draw that class only."""

from collections.abc import Sequence

import numpy as np

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
