"""Combines many contributions into one. Each rule gets one contribution at a time, in unit order, and gives its result once.

`mean` keeps one contribution however many come. The robust rules need all of them at once: those are spooled to a
temporary file and read back in blocks of columns, so memory stays bounded for any class size.

What each can bear: `mean` none; `median` and `centered_clip` fewer than half of the contributions being hostile;
`trimmed_mean` and `multi_krum` up to a quarter, so none among fewer than four.

A rule that chooses contributors chooses them once, for both networks: whoever spoils one of them has no say in the other.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import IO, Protocol

import numpy as np
import torch
from torch import Tensor

from gan_core.layout import PARTS, Vectors
from gan_core.plan import AggregationName

LOOKED_AT = 1 << 21  # numbers that a rule looks at together, of all contributions: 8 MB
TRIM = 0.25  # share cut off at each end by trimmed_mean, and assumed hostile by multi_krum
CLIP_ROUNDS = 3  # centred clipping converges in a few rounds (Karimireddy et al. 2021, section 4)


class AggregationRule(Protocol):
    """Takes contributions with their image counts, returns one of the same layout."""

    def add(self, contribution: Vectors, images: int) -> None: ...

    def result(self) -> Vectors: ...


class Mean:
    """The mean weighted by images. One hostile contribution moves it as far as it likes."""

    def __init__(self) -> None:
        self._mean: Vectors | None = None
        self._images = 0

    def add(self, contribution: Vectors, images: int) -> None:
        self._images += images
        if self._mean is None:
            self._mean = contribution.clone()
            return
        for part in PARTS:  # the running form: exact for a single contribution and for identical ones
            self._mean.part(part).lerp_(contribution.part(part), images / self._images)

    def result(self) -> Vectors:
        if self._mean is None:
            raise ValueError("nothing was added: a mean needs at least one contribution")
        return self._mean


class Spooled:
    """A rule that looks at all contributions together, block by block, from a temporary file."""

    def __init__(self, rule: "Callable[[Rows], Tensor]") -> None:
        self._rule = rule
        self._file = tempfile.TemporaryFile(prefix="classgan-")  # noqa: SIM115  lives as long as the rule
        self._images: list[int] = []
        self._lengths: list[int] = []

    def add(self, contribution: Vectors, images: int) -> None:
        vectors = [contribution.part(part).contiguous() for part in PARTS]
        self._lengths = [vector.numel() for vector in vectors]
        for vector in vectors:
            self._file.write(memoryview(vector.numpy()).cast("B"))
        self._images.append(images)

    def result(self) -> Vectors:
        if not self._images:
            raise ValueError("nothing was added: an aggregation needs at least one contribution")
        rows = Rows(self._file, self._lengths, torch.tensor(self._images, dtype=torch.float32))
        return Vectors(*self._rule(rows).split(self._lengths))


class Rows:
    """All contributions as a (contributions, numbers) matrix on disk, read in blocks of columns.

    Args:
        file: the rows one after the other, float32.
        lengths: of the parts, which lie side by side in each row.
        images: (contributions,) of each.
    """

    def __init__(self, file: IO[bytes], lengths: list[int], images: Tensor) -> None:
        self._file, self._lengths, self.images = file, lengths, images
        self.count, self.length = len(images), sum(lengths)
        # Whoever had few images to learn from has part of a voice. A long walk has one voice like any other.
        self.voices = (images.double() / images.median()).clamp(max=1)

    def blocks(self) -> Iterator[tuple[int, slice, Tensor]]:
        """(part's number, columns, (contributions, columns) their numbers), at most LOOKED_AT numbers at a time."""
        width = max(1, LOOKED_AT // self.count)
        start = 0
        for part, length in enumerate(self._lengths):
            end = start + length
            for first in range(start, end, width):
                columns = slice(first, min(first + width, end))
                yield part, columns, self._read(range(self.count), columns)
            start = end

    def row(self, number: int) -> Tensor:
        """(numbers,) one of them."""
        return self._read(range(number, number + 1), slice(0, self.length))[0]

    def _read(self, numbers: range, columns: slice) -> Tensor:
        # No memory map: the pages that it has touched count as ours for as long as it lives.
        width = columns.stop - columns.start
        block = np.empty((len(numbers), width), dtype=np.float32)
        for place, number in enumerate(numbers):
            self._file.seek(4 * (number * self.length + columns.start))
            block[place] = np.frombuffer(self._file.read(4 * width), dtype=np.float32)
        return torch.from_numpy(block)

    def squared_distances(self, centre: Tensor) -> Tensor:
        """(parts, contributions) float64: of each contribution's part from this vector (numbers,)."""
        squares = torch.zeros(len(self._lengths), self.count, dtype=torch.float64)
        for part, columns, block in self.blocks():
            squares[part] += block.double().sub_(centre[columns]).square_().sum(dim=1)
        return squares

    def mean(self, weights: Tensor, around: Tensor) -> Tensor:
        """(numbers,) the vector `around` plus the differences from it times these weights (contributions,).

        Where it is one of them, identical contributions come back exactly.
        """
        out, counted = torch.empty(self.length), weights > 0
        for _, columns, block in self.blocks():
            centre = around[columns]
            out[columns] = centre + weights[counted] @ block[counted].sub_(centre)
        return out


def median(rows: Rows) -> Tensor:
    """The middle value of each coordinate. Source: Yin et al. 2018 (arXiv:1803.01498), definition 1."""
    out, half = torch.empty(rows.length), rows.voices.sum() / 2
    for _, columns, block in rows.blocks():
        ordered, reached = _ordered(block, rows.voices)
        low, high = ((reached < half).sum(0, keepdim=True), (reached <= half).sum(0, keepdim=True))
        out[columns] = ordered.take_along_dim(low, 0).lerp(ordered.take_along_dim(high, 0), 0.5)[0]
    return out


def trimmed_mean(rows: Rows) -> Tensor:
    """Each coordinate's mean without its largest and smallest quarter. Source: Yin et al. 2018 (arXiv:1803.01498), definition 2."""
    whole = rows.voices.sum()
    cut = (TRIM * whole).floor()
    out = torch.empty(rows.length)
    for _, columns, block in rows.blocks():
        ordered, reached = _ordered(block, rows.voices)
        kept = reached.clamp(cut, whole - cut).diff(dim=0, prepend=cut.expand(1, reached.shape[1]))
        middle = ordered[rows.count // 2].clone()  # around one of them: identical inputs come back exactly
        out[columns] = middle + ordered.sub_(middle).mul_((kept / kept.sum(0)).float()).sum(0)
    return out


def _ordered(block: Tensor, voices: Tensor) -> tuple[Tensor, Tensor]:
    """Each column in ascending order, and the sum of voices up to each number: (contributions, columns), or
    (contributions, 1) where it is the same for all columns. NumPy sorts short columns four times faster than PyTorch.
    """
    if bool((voices == 1).all()):
        block.numpy().sort(axis=0)
        return block, voices.cumsum(0)[:, None]
    order = torch.from_numpy(block.numpy().argsort(axis=0))
    return block.take_along_dim(order, 0), voices[order].cumsum(0)


def centered_clip(rows: Rows) -> Tensor:
    """From the coordinate median, average the differences after cutting each to the median length.

    A contribution's length is that of its part that is longer in comparison with the others'.
    Source: Karimireddy et al. 2021 (arXiv:2012.10333), algorithm 2.
    """
    centre = median(rows)
    for _ in range(CLIP_ROUNDS):
        lengths = rows.squared_distances(centre).sqrt()
        usual = lengths.median(dim=1, keepdim=True).values.clamp_min(1e-300)
        times = (lengths / usual).amax(dim=0)
        shrink = (times.median() / times.clamp_min(1e-300)).clamp(max=1)
        centre = rows.mean((shrink * rows.images / rows.images.sum()).float(), centre)
    return centre


def multi_krum(rows: Rows) -> Tensor:
    """The mean of those contributions that lie closest to their neighbours. Source: Blanchard et al. 2017, section 4.

    Each part's distances are taken in units of that part's usual one, so that both networks say equally who stands apart.
    """
    if rows.count < 4:  # too few to tell who stands apart
        return median(rows)
    products = torch.zeros(len(PARTS), rows.count, rows.count, dtype=torch.float64)
    for part, _, block in rows.blocks():
        wide = block.double()
        wide -= wide[0].clone()  # around one of them: near ones' distances don't drown in their lengths
        products[part] += wide @ wide.T
    lengths = products.diagonal(dim1=1, dim2=2)
    squares = (lengths[:, :, None] + lengths[:, None, :] - 2 * products).clamp_min(0)
    pairs = torch.triu_indices(rows.count, rows.count, 1)
    usual = squares[:, pairs[0], pairs[1]].median(dim=1).values
    apart = (squares / usual.clamp_min(1e-300)[:, None, None]).sum(dim=0)
    hostile = int(TRIM * rows.count)
    neighbours = max(1, rows.count - hostile - 2)
    scores = apart.sort(dim=1).values[:, 1 : 1 + neighbours].sum(dim=1)
    chosen = scores.sort(stable=True).indices[: rows.count - hostile].sort().values
    weights = torch.zeros(rows.count)
    weights[chosen] = rows.images[chosen] / rows.images[chosen].sum()
    return rows.mean(weights, rows.row(int(chosen[0])))


RULES: Mapping[AggregationName, Callable[[], AggregationRule]] = MappingProxyType(
    {
        "mean": Mean,
        "median": lambda: Spooled(median),
        "trimmed_mean": lambda: Spooled(trimmed_mean),
        "centered_clip": lambda: Spooled(centered_clip),
        "multi_krum": lambda: Spooled(multi_krum),
    }
)
