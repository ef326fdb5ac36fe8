"""Data set → the order of an epoch → units. A unit is a pure function of the plan and a position, so nothing is stored."""

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from gan_core.errors import DataError
from gan_core.plan import Plan, SamplerName
from gan_core.units import WorkUnit

# (images in the data set, labels or None, seed of this epoch) → every index exactly once
Sampler = Callable[[int, np.ndarray | None, int], np.ndarray]


def shuffled(images: int, labels: np.ndarray | None, seed: int) -> np.ndarray:
    """Another random order each epoch."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(images)


def sequential(images: int, labels: np.ndarray | None, seed: int) -> np.ndarray:
    """The order of the files, each epoch."""
    return np.arange(images)


def stratified(images: int, labels: np.ndarray | None, seed: int) -> np.ndarray:
    """A random order in which every label is spread evenly: any slice holds the labels in about the data's proportions.

    Raises DataError when the data has no labels.
    """
    if labels is None:
        raise DataError("The sampler `stratified` needs labels, and this data has none. Choose `shuffled`.")
    random = np.random.Generator(np.random.PCG64(seed))
    places = np.empty(images)
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        # The j-th of n members stands near (j + ½) / n of the way through the epoch.
        places[members] = (np.arange(len(members)) + random.random(len(members))) / len(members)
    return np.argsort(places, kind="stable")


SAMPLERS: Mapping[SamplerName, Sampler] = MappingProxyType(
    {
        "shuffled": shuffled,
        "sequential": sequential,
        "stratified": stratified,
    }
)


def seed_of(*parts: object) -> int:
    """A 63-bit seed that differs for any other parts."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def cut_units(
    plan: Plan, position: int, images: int, labels: np.ndarray | None = None, quorum: int | None = None
) -> tuple[list[WorkUnit], int]:
    """The next iteration's units: slices of the epoch's order until they hold the quorum.

    An epoch's last slice may be short and is used like any other; the next one starts a new epoch.

    Args:
        position: images handed out so far, over all epochs
        images: size of the data set
        quorum: images that they hold at least; None is the plan's, where `auto` means one machine's: a single unit

    Returns:
        the units, and the position after them
    """
    units: list[WorkUnit] = []
    total, order_epoch, order = 0, -1, np.empty(0, dtype=np.int64)
    wanted = plan.quorum_for([None])[0] if quorum is None else quorum
    while total < wanted:
        epoch, offset = divmod(position, images)
        if epoch != order_epoch:
            order, order_epoch = SAMPLERS[plan.sampler](images, labels, seed_of(plan.seed, "epoch", epoch)), epoch
        indices = order[offset : offset + plan.images_per_unit]
        units.append(
            WorkUnit(
                ordinal=len(units),
                epoch=epoch,
                indices=tuple(indices.tolist()),
                seed=seed_of(plan.seed, "unit", position),
            )
        )
        position += len(indices)
        total += len(indices)
    return units, position
