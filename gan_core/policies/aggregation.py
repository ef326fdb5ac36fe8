"""Combines many contributions into one. Each rule gets one contribution at a time, in unit order, and gives its result once.

`mean` keeps one vector however many contributions come. The robust rules need all of them at once: those are spooled
to a temporary file and read back in blocks, so memory stays bounded for any class size.

What each can bear: `mean` none; `median` and `centered_clip` fewer than half of the contributions being hostile;
`trimmed_mean` and `multi_krum` up to a quarter, so none among fewer than four.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gan_core.plan import AggregationName

BLOCK = 1 << 18  # numbers of each contribution looked at together: 1 MB a contribution
TRIM = 0.25  # share cut off at each end by trimmed_mean, and assumed hostile by multi_krum
CLIP_ROUNDS = 3  # centred clipping converges in a few rounds (Karimireddy et al. 2021, section 4)


class AggregationRule(Protocol):
    """Takes flat vectors with their image counts, returns one vector of the same length."""

    def add(self, vector: Tensor, images: int) -> None: ...

    def result(self) -> Tensor: ...


class Mean:
    """The mean weighted by images. One hostile contribution moves it as far as it likes."""

    def __init__(self) -> None:
        self._mean: Tensor | None = None
        self._images = 0

    def add(self, vector: Tensor, images: int) -> None:
        self._images += images
        if self._mean is None:
            self._mean = vector.clone()
        else:  # the running form: exact for a single contribution and for identical ones
            self._mean.lerp_(vector, images / self._images)

    def result(self) -> Tensor:
        if self._mean is None:
            raise ValueError("nothing was added: a mean needs at least one contribution")
        return self._mean


class Spooled:
    """A rule that looks at all contributions together, block by block, from a temporary file."""

    def __init__(self, rule: "Callable[[Rows], Tensor]") -> None:
        self._rule = rule
        self._file = tempfile.TemporaryFile(prefix="classgan-")  # noqa: SIM115  lives as long as the rule
        self._images: list[int] = []
        self._length = 0

    def add(self, vector: Tensor, images: int) -> None:
        self._length = vector.numel()
        self._file.write(memoryview(vector.contiguous().numpy()).cast("B"))
        self._images.append(images)

    def result(self) -> Tensor:
        if not self._images:
            raise ValueError("nothing was added: an aggregation needs at least one contribution")
        if not self._length:
            return torch.zeros(0)
        self._file.flush()
        matrix = np.memmap(self._file, dtype=np.float32, mode="r+", shape=(len(self._images), self._length))
        return self._rule(Rows(matrix, torch.tensor(self._images, dtype=torch.float32)))


class Rows:
    """All contributions as a (contributions, numbers) matrix on disk, read in blocks of columns."""

    def __init__(self, matrix: np.ndarray, images: Tensor) -> None:
        self._matrix = matrix
        self.images = images
        self.count, self.length = matrix.shape

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, self.length, BLOCK):
            columns = slice(start, min(start + BLOCK, self.length))
            yield columns, torch.from_numpy(np.array(self._matrix[:, columns]))  # a copy: rules may sort it


def median(rows: Rows) -> Tensor:
    """The middle value of each coordinate. Source: Yin et al. 2018 (arXiv:1803.01498), definition 1."""
    out = torch.empty(rows.length)
    low, high = (rows.count - 1) // 2, rows.count // 2
    for columns, block in rows.blocks():
        ordered = _sorted(block)
        out[columns] = ordered[low].lerp(ordered[high], 0.5)
    return out


def trimmed_mean(rows: Rows) -> Tensor:
    """Each coordinate's mean without its largest and smallest quarter. Source: Yin et al. 2018 (arXiv:1803.01498), definition 2."""
    cut = int(TRIM * rows.count)
    out = torch.empty(rows.length)
    for columns, block in rows.blocks():
        kept = _sorted(block)[cut : rows.count - cut]
        first = kept[0]
        out[columns] = first + (kept - first).mean(dim=0)  # around one of them: identical inputs come back exactly
    return out


def _sorted(block: Tensor) -> Tensor:
    """Each column in ascending order, in place. NumPy sorts short columns four times faster than PyTorch."""
    block.numpy().sort(axis=0)
    return block


def centered_clip(rows: Rows) -> Tensor:
    """From the coordinate median, average the differences after cutting each to the median length.

    Source: Karimireddy et al. 2021 (arXiv:2012.10333), algorithm 2.
    """
    centre = median(rows)
    for _ in range(CLIP_ROUNDS):
        squares = torch.zeros(rows.count, dtype=torch.float64)
        for columns, block in rows.blocks():
            squares += (block - centre[columns]).double().square().sum(dim=1)
        lengths = squares.sqrt()
        radius = lengths.median()
        shrink = torch.where(lengths > radius, radius / lengths.clamp_min(1e-300), torch.ones_like(lengths)).float()
        weights = shrink * rows.images / rows.images.sum()
        for columns, block in rows.blocks():
            centre[columns] += weights @ (block - centre[columns])
    return centre


def multi_krum(rows: Rows) -> Tensor:
    """The mean of those contributions that lie closest to their neighbours. Source: Blanchard et al. 2017, section 4."""
    if rows.count < 4:  # too few to tell who stands apart
        return median(rows)
    squares = torch.zeros(rows.count, rows.count, dtype=torch.float64)
    for _, block in rows.blocks():
        squares += torch.cdist(block.double(), block.double()).square()
    hostile = int(TRIM * rows.count)
    neighbours = max(1, rows.count - hostile - 2)
    scores = squares.sort(dim=1).values[:, 1 : 1 + neighbours].sum(dim=1)
    chosen = scores.sort(stable=True).indices[: rows.count - hostile].sort().values
    weights = rows.images[chosen] / rows.images[chosen].sum()
    out = torch.empty(rows.length)
    for columns, block in rows.blocks():
        first = block[chosen[0]]
        out[columns] = first + weights @ (block[chosen] - first)
    return out


RULES: Mapping[AggregationName, Callable[[], AggregationRule]] = MappingProxyType(
    {
        "mean": Mean,
        "median": lambda: Spooled(median),
        "trimmed_mean": lambda: Spooled(trimmed_mean),
        "centered_clip": lambda: Spooled(centered_clip),
        "multi_krum": lambda: Spooled(multi_krum),
    }
)
