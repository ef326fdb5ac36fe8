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
    """The next iteration's units: slices of the epochs' orders, one after the other, until they hold the quorum.

    Where an epoch ends within a unit, the unit goes on with the next one: none is so small that its batches would be.

    Args:
        position: images handed out so far, over all epochs
        images: size of the data set
        quorum: images that they hold at least; None is the plan's, where `auto` means one machine's: a single unit
        shards: images in each shard of the data set; none for data that lies on every machine. A unit stays within a
            shard, so that a machine with the first ones has something to do: it is up to half smaller or larger.
        detail: how much happens in each image; only `progressive` asks

    Returns:
        the units, and the position after them
    """
    units: list[WorkUnit] = []
    orders = Orders(plan, images, labels, shards, detail)
    total, wanted = 0, plan.least_quorum if quorum is None else quorum
    while total < wanted:
        indices = orders.unit_at(position)
        units.append(
            WorkUnit(
                ordinal=len(units),
                epoch=position // images,
                indices=tuple(indices.tolist()),
                seed=seed_of(plan.seed, "unit", position),
                position=position,
                reach=int(indices.max()) + 1 if shards else 0,
            )
        )
        position += len(indices)
        total += len(indices)
    return units, position


class Orders:
    """The orders of all epochs; the latest is kept."""

    def __init__(
        self,
        plan: Plan,
        images: int,
        labels: np.ndarray | None,
        shards: Sequence[int],
        detail: np.ndarray | None,
    ) -> None:
        self._plan, self._images, self._labels, self._detail = plan, images, labels, detail
        self._shards = _joined(shards, plan.images_per_unit) if plan.shards != "off" else []
        self._epoch, self._order, self._ends = -1, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def unit_at(self, position: int) -> np.ndarray:
        """(images,) indices of the unit that begins at this position."""
        if len(self._shards) > 1:
            epoch, offset = divmod(position, self._images)
            order = self._of(epoch)
            return order[offset : self._ends[np.searchsorted(self._ends, offset, side="right")]]
        return self.slice(position, self._plan.images_per_unit)

    def slice(self, position: int, size: int) -> np.ndarray:
        """(size,) indices from this position on."""
        epoch, offset = divmod(position, self._images)
        taken = []
        while size:
            taken.append(self._of(epoch)[offset : offset + size])
            size -= len(taken[-1])
            epoch, offset = epoch + 1, 0
        return np.concatenate(taken)

    def _of(self, epoch: int) -> np.ndarray:
        """(images,) an epoch's order; of data in shards, where each unit ends is noted, too."""
        if epoch != self._epoch:
            seed = seed_of(self._plan.seed, "epoch", epoch)
            whole = Pool(self._images, self._labels, self._detail, epoch, seed)
            pieces = self._cut(whole) if len(self._shards) > 1 else [self._sampler(whole)]
            self._epoch, self._order = epoch, np.concatenate(pieces)
            self._ends = np.cumsum([len(piece) for piece in pieces])
        return self._order

    @property
    def _sampler(self) -> Sampler:
        return SAMPLERS[self._plan.sampler]

    def _cut(self, whole: Pool) -> list[np.ndarray]:
        """The units of all shards, shuffled unless the sampler keeps the files' order."""
        pieces: list[np.ndarray] = []
        start = 0
        for number, size in enumerate(self._shards):
            mine = slice(start, start + size)
            labels, detail = (None if of is None else of[mine] for of in (whole.labels, whole.detail))
            order = start + self._sampler(Pool(size, labels, detail, whole.epoch, seed_of(whole.seed, "shard", number)))
            pieces += np.array_split(order, max(1, round(size / self._plan.images_per_unit)))
            start += size
        if self._plan.sampler != "sequential":
            pieces = [pieces[i] for i in whole.random.permutation(len(pieces))]
        return pieces


def _joined(shards: Sequence[int], images_per_unit: int) -> list[int]:
    """The shards' sizes, those that are too small for a unit joined with their neighbours."""
    sizes: list[int] = []
    for size in shards:
        if sizes and min(size, sizes[-1]) < images_per_unit / 2:
            sizes[-1] += size
        else:
            sizes.append(size)
    return sizes
