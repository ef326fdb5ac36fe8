"""Samplers: put a data set into the order of an epoch and cut it into units. A unit is a pure function of the plan and a position, so nothing is stored."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gan_core.errors import DataError
from gan_core.plan import Plan, SamplerName
from gan_core.units import WorkUnit


@dataclass(frozen=True, slots=True)
class Pool:
    """Images to bring into an order, and what is known of them."""

    images: int
    labels: np.ndarray | None  # (images,) int64
    detail: np.ndarray | None  # (images,) how much happens in each; only for samplers that go by it
    epoch: int
    seed: int  # of this epoch

    @property
    def random(self) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self.seed))


Sampler = Callable[[Pool], np.ndarray]  # → (images,): every index exactly once

MIXED_AFTER = 4  # epochs, from which on `progressive` is as good as shuffled


def shuffled(pool: Pool) -> np.ndarray:
    """Another random order each epoch."""
    return pool.random.permutation(pool.images)


def sequential(pool: Pool) -> np.ndarray:
    """The order of the files, each epoch."""
    return np.arange(pool.images)


def stratified(pool: Pool) -> np.ndarray:
    """A random order in which every label is spread evenly: any slice holds the labels in about the data's proportions.

    Raises DataError when the data has no labels.
    """
    if pool.labels is None:
        raise DataError("The sampler `stratified` needs labels, and this data has none. Choose `shuffled`.")
    random, places = pool.random, np.empty(pool.images)
    for label in np.unique(pool.labels):
        members = random.permutation(np.flatnonzero(pool.labels == label))
        # The j-th of n members stands near (j + ½) / n of the way through the epoch.
        places[members] = (np.arange(len(members)) + random.random(len(members))) / len(members)
    return np.argsort(places, kind="stable")


def progressive(pool: Pool) -> np.ndarray:
    """Simple images first, in the first epoch; each later one mixes more, until the order is all random.

    A curriculum in the sense of Bengio et al. 2009 (doi:10.1145/1553374.1553380). In epoch e an image stands where the sum
    of its rank by detail, times 1 - m, and a random place, times m, puts it; m = e / MIXED_AFTER, at most 1.
    """
    if pool.detail is None:
        raise DataError(
            "The sampler `progressive` needs to know each image's detail, and this data has no such figure. Choose "
            "`shuffled`."
        )
    ranks = np.empty(pool.images)
    ranks[np.argsort(pool.detail, kind="stable")] = np.arange(pool.images)
    mixed = min(1.0, pool.epoch / MIXED_AFTER)
    return np.argsort((1 - mixed) * ranks + mixed * pool.random.permutation(pool.images), kind="stable")


SAMPLERS: Mapping[SamplerName, Sampler] = MappingProxyType(
    {
        "shuffled": shuffled,
        "sequential": sequential,
        "stratified": stratified,
        "progressive": progressive,
    }
)


def seed_of(*parts: object) -> int:
    """A 63-bit seed that differs for any other parts."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def cut_units(
    plan: Plan,
    position: int,
    images: int,
    labels: np.ndarray | None = None,
    quorum: int | None = None,
    shards: Sequence[int] = (),
    detail: np.ndarray | None = None,
) -> tuple[list[WorkUnit], int]:
    """The next iteration's units: slices of the epoch's order until they hold the quorum.

    An epoch's last slice may be short and is used like any other; the next one starts a new epoch. So may a shard's last.

    Args:
        position: images handed out so far, over all epochs
        images: size of the data set
        quorum: images that they hold at least; None is the plan's, where `auto` means one machine's: a single unit
        shards: images in each shard of the data set; none for data that lies on every machine
        detail: how much happens in each image; only `progressive` asks

    Returns:
        the units, and the position after them
    """
    units: list[WorkUnit] = []
    total, order_epoch, order, ends = 0, -1, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    wanted = plan.quorum_for([None])[0] if quorum is None else quorum
    while total < wanted:
        epoch, offset = divmod(position, images)
        if epoch != order_epoch:
            pool = Pool(images, labels, detail, epoch, seed_of(plan.seed, "epoch", epoch))
            order, ends = _order(plan, pool, shards)
            order_epoch = epoch
        end = ends[np.searchsorted(ends, offset, side="right")]  # of the stretch that no unit leaves
        indices = order[offset : min(offset + plan.images_per_unit, end)]
        units.append(
            WorkUnit(
                ordinal=len(units),
                epoch=epoch,
                indices=tuple(indices.tolist()),
                seed=seed_of(plan.seed, "unit", position),
                reach=int(indices.max()) + 1 if shards else 0,
            )
        )
        position += len(indices)
        total += len(indices)
    return units, position


def _order(plan: Plan, pool: Pool, shards: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(images,) an epoch's order, and (stretches,) where the stretches end that a unit stays within.

    With shards, each is brought into the sampler's order and cut into units, and then all units are shuffled.
    """
    sampler = SAMPLERS[plan.sampler]
    if plan.shards == "off" or len(shards) < 2:
        return sampler(pool), np.array([pool.images])
    pieces: list[np.ndarray] = []
    start = 0
    for number, size in enumerate(shards):
        mine = slice(start, start + size)
        labels, detail = (None if of is None else of[mine] for of in (pool.labels, pool.detail))
        order = start + sampler(Pool(size, labels, detail, pool.epoch, seed_of(pool.seed, "shard", number)))
        pieces += np.split(order, range(plan.images_per_unit, size, plan.images_per_unit))
        start += size
    if plan.sampler != "sequential":
        pieces = [pieces[i] for i in pool.random.permutation(len(pieces))]
    return np.concatenate(pieces), np.cumsum([len(piece) for piece in pieces])
