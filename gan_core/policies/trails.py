"""Trails: how a machine's weights moved, folded to a few thousand numbers for each stretch of its way.

Two machines that computed the same lease are compared by them: the change that one of them sent must hold the stretches
that the other one walked, as it must hold those of a recomputation (`validation.judge`). A trail's signs follow from the
units' seed, so two trails of the same lease can be compared, and nobody knows them before the lease is handed out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gan_core.errors import PayloadError
from gan_core.layout import PARTS, Layout, Part, Vectors
from gan_core.plan import Plan
from gan_core.policies.codecs import CODECS, DTYPES
from gan_core.policies.sampling import seed_of
from gan_core.policies.validation import Likeness, edges, judge, likeness, tensor_lengths
from gan_core.units import WorkUnit

FOLDED = 4_096  # numbers of a stretch, for each network
INT8 = CODECS["int8"]


def fold(vector: Tensor, signs: Tensor, numbers: int) -> Tensor:
    """(at most `numbers`,): number i is added to number i mod `numbers`; random signs make what meets there cancel out on average."""
    folded = torch.zeros(min(numbers, len(vector)))
    for some, their_signs in zip(vector.split(numbers), signs.split(numbers), strict=True):
        folded[: len(some)].addcmul_(
            some, their_signs
        )  # one pass: in the coordinator this is on the way to the next weights
    return folded


def random_signs(layout: Layout, random: torch.Generator) -> dict[Part, Tensor]:
    """+1 or -1 for each number of a model."""
    return {part: torch.empty(layout.length(part)).bernoulli_(0.5, generator=random).mul_(2).sub_(1) for part in PARTS}


def _signs_of(layout: Layout, units: Sequence[WorkUnit]) -> dict[Part, Tensor]:
    return random_signs(layout, torch.Generator().manual_seed(seed_of(units[0].seed, "trail")))


class Trail:
    """The trail of one lease, while it is computed: shown each point of the way, it keeps the point's fold."""

    def __init__(self, layout: Layout, units: Sequence[WorkUnit]) -> None:
        self._signs = _signs_of(layout, units)
        self._seed = units[0].seed
        self._points: dict[Part, dict[int, Tensor]] = {part: {} for part in PARTS}

    def add(self, batches: int, point: Vectors) -> None:
        """The weights after so many batches (`networks.gradients.contribute`)."""
        for part, points in self._points.items():
            points[batches] = fold(point.part(part), self._signs[part], FOLDED)

    def encode(self) -> bytes:
        """8 bits a number, with a scale for each 256. Seeded by the units: a lease's trail has the same bytes anywhere."""
        random = torch.Generator().manual_seed(seed_of(self._seed, "trail's rounding"))
        pieces: list[np.ndarray] = []
        for points in self._points.values():
            # A way that may end early shows more points than it turns out to have edges.
            ways = [points[at] for at in (0, *edges(max(points))) if at in points]
            stretches = torch.stack([after - before for before, after in pairwise(ways)])
            pieces += INT8.encode(stretches.view(-1), random)
        return b"".join(piece.tobytes() for piece in pieces)


def decode_trail(trail: bytes, plan: Plan, layout: Layout, units: Sequence[WorkUnit]) -> dict[Part, Tensor]:
    """For each network (stretches, at most FOLDED), float32.

    Raises:
        PayloadError: it has another size than this lease's trail, or numbers that are not finite.
    """
    batches = sum(plan.batches_of(unit.images) for unit in units)
    stretches = len(edges(batches)) if plan.contribution == "local_steps" else 1
    sizes = {part: (stretches, min(FOLDED, layout.length(part))) for part in PARTS}
    expected = sum(
        elements * DTYPES[dtype].itemsize
        for rows, numbers in sizes.values()
        for _, dtype, elements in INT8.fields(rows * numbers)
    )
    if len(trail) != expected:
        raise PayloadError(f"trail has {len(trail):,} bytes, this lease's have {expected:,}")
    decoded, offset = {}, 0
    for part, (rows, numbers) in sizes.items():
        arrays = []
        for _, dtype, elements in INT8.fields(rows * numbers):
            arrays.append(np.frombuffer(trail, DTYPES[dtype], elements, offset))
            offset += elements * DTYPES[dtype].itemsize
        decoded[part] = INT8.decode(tuple(arrays), rows * numbers).view(rows, numbers)
    return decoded


@dataclass(frozen=True, slots=True)
class Answer:
    """What one of two machines sent for the same lease."""

    claimed: Vectors
    trail: bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two answers to the same lease say of each other."""

    agree: bool  # each of them is then as good as a recomputation of the other
    figures: tuple[dict[Part, Likeness], dict[Part, Likeness]]  # of each answer, beside the other's trail


def compare(plan: Plan, layout: Layout, units: Sequence[WorkUnit], answers: tuple[Answer, Answer]) -> Comparison:
    """Whether two machines did the same work. Neither is believed: disagreement only means that somebody must recompute it.

    Raises:
        PayloadError: a trail can't be read.
    """
    signs = _signs_of(layout, units)
    trails = [decode_trail(answer.trail, plan, layout, units) for answer in answers]
    folds = [{part: fold(answer.claimed.part(part), signs[part], FOLDED) for part in PARTS} for answer in answers]
    # A way of one stretch is the claim itself, which was rounded as the other one was: int4 rounds off a hundredth.
    ways = [
        {part: trail[part] if len(trail[part]) > 1 else folded[part][None] for part in PARTS}
        for trail, folded in zip(trails, folds, strict=True)
    ]
    mine, theirs = (
        {
            part: replace(
                likeness(folded[part], way[part].double()),
                tensors=tensor_lengths(answer.claimed.part(part), other.claimed.part(part), layout.part(part)),
            )
            for part in PARTS
        }
        for answer, other, folded, way in zip(answers, reversed(answers), folds, reversed(ways), strict=True)
    )
    # Two that did nothing would be alike, too. Sometimes nothing is the right answer: a recomputation tells.
    did_something = all(bool(trail[part].any()) for trail in trails for part in PARTS)
    return Comparison(did_something and judge(mine).valid and judge(theirs).valid, (mine, theirs))
