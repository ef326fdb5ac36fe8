"""Validates a contribution: is it the work of its lease? It is compared with a recomputation.

Local steps amplify rounding from step to step. Honest results of 100 steps on two machines may have a cosine of 0.5, less than
that of a cheat who computed half of the batches. So a claimed change is taken apart: which share of each stretch of the
recomputed path does it contain? Who skipped a stretch has nothing of it; who walked it on another device has a good part of
it, because every batch leaves its own mark in thousands of dimensions. How large that part must be says a twin of the
recomputation that was rounded to bfloat16 on purpose: no honest device strays further.

The measured table behind the tolerances is in docs/validation.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from gan_core.layout import PARTS, Layout, Part, TensorSpec, Vectors

ALWAYS = 10  # valid results in a row until which every result is checked
OPENING = 5  # batches of the first stretch: rounding has not grown yet, so it must match closely
ENDLESS = 1e9  # times the length of nothing: a number that can be stored

OPENING_SHARE = (
    0.8  # of what the twin has of the opening, at most the whole; honest ones have 0.9 and more, copies at most 0.7
)
LATER_SHARE = 0.5  # of what the twin has of a later stretch; who skipped it has next to nothing
BLURRED = 0.1  # a stretch of which even the twin has less can't be judged
LENGTH = 1.5  # times longer or shorter than recomputed, or a single tensor longer; honest ones differ by 0.1 and 0.2
FAINT = (
    0.01  # times the root mean square of its part: a tensor below counts as so long, for it may be nothing but rounding
)
CHANCE = 2.0  # standard deviations that chance may add to a tensor's length
ANGLE = 4.0  # times the twin's 1 - cosine; honest ones have at most 1.5 times, a gradient of half of the batches 20 times and more
EXACT = 5e-4  # 1 - cosine below which nothing is asked: rounding of the int8 codec, twice


def check_probability(streak: int) -> float:
    """How likely the next result of a student is checked after so many valid ones in a row.

    A streak counts results that were checked, so it grows slowly: an honest student is checked 10 times at first, then
    about 7 times in the next 80 results, and 4 times in the 100 after that.
    """
    return 1.0 if streak < ALWAYS else 1.0 / streak


def edges(batches: int) -> tuple[int, ...]:
    """After which batches a path of so many is cut: 5, 10, 20, 40, ... and the end; no last stretch is short.

    Short paths are cut in the middle, so that even there who computed half of the batches has nothing of a stretch.
    """
    cuts, length = [], min(OPENING, max(1, batches // 2))
    while length + length // 2 < batches or (not cuts and length < batches):
        cuts.append(length)
        length *= 2
    return (*cuts, batches)


def possible_edges(batches: int) -> tuple[int, ...]:
    """The edges that a path may have which ends after at most so many batches, but for its end."""
    doubled = [OPENING * 2**n for n in range(batches.bit_length())]
    return (*range(1, OPENING), *(edge for edge in doubled if edge < batches))


@dataclass(slots=True)
class Track:
    """A recomputation: where the weights were at each edge, or the one gradient.

    Args:
        points: for `local_steps`, the weights at the start and after each stretch; for `gradient`, zeros and the gradient.
    """

    points: list[Vectors]

    def stretches(self, part: Part) -> Tensor:
        """(stretches, numbers), float64: the change along each stretch."""
        ends = [point.part(part).double() for point in self.points]
        return torch.stack([after - before for before, after in pairwise(ends)])


class TensorLength(NamedTuple):
    """How long one tensor of a result is."""

    length: float  # times the recomputed one's
    numbers: int

    def allowed(self, twin: "Likeness", name: str) -> float:
        """How long it may be: where the twin strayed, lengths of few numbers vary by chance, those of n by 1/√n."""
        usual = max(1.0, twin.tensors[name].length) if name in twin.tensors else 1.0
        return LENGTH * usual * (1 + CHANCE * (1 - twin.cosine) / math.sqrt(self.numbers))


@dataclass(frozen=True, slots=True)
class Likeness:
    """How a result relates to a recomputed path, for one network."""

    cosine: float
    length: float  # times the recomputed one's
    shares: tuple[float, ...]  # of each stretch that the result contains; 1 if it is the same
    tensors: Mapping[str, "TensorLength"] = field(default_factory=dict)  # by name


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says."""

    valid: bool
    reason: str = ""  # for the student; "" if valid
    figures: dict[str, dict[str, float | list[float]]] = field(default_factory=dict)  # part → Likeness


def likeness(result: Tensor, stretches: Tensor) -> Likeness:
    """How this result (numbers,) relates to these stretches (stretches, numbers): least squares, exact in float64."""
    result, whole = result.double(), stretches.sum(0)
    mine, theirs = float(result.norm()), float(whole.norm())
    if theirs == 0:  # a network that learns nothing, such as one whose hinge is satisfied: nothing is the right answer
        nothing = mine == 0
        return Likeness(float(nothing), 1.0 if nothing else ENDLESS, (float(nothing),) * len(stretches))
    gram = stretches @ stretches.T
    ridge = 1e-9 * float(gram.diagonal().mean())
    shares = torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype), stretches @ result)
    shares = torch.where(gram.diagonal() > 0, shares, 1.0)  # whoever does nothing there does all of it
    return Likeness(float(result @ whole) / (mine * theirs) if mine else 0.0, mine / theirs, tuple(shares.tolist()))


def alike(result: Vectors, path: Track, layout: Layout) -> dict[Part, Likeness]:
    """`likeness` of both networks' parts, and of each of their tensors the length."""
    found = {}
    for part in PARTS:
        mine, stretches = result.part(part).double(), path.stretches(part)
        found[part] = replace(
            likeness(mine, stretches), tensors=tensor_lengths(mine, stretches.sum(0), layout.part(part))
        )
    return found


def tensor_lengths(mine: Tensor, theirs: Tensor, specs: Sequence[TensorSpec]) -> dict[str, TensorLength]:
    """name → how long each tensor in `mine` (numbers,) is beside that in `theirs`."""
    faint = FAINT * float(theirs.square().mean().sqrt())
    lengths = {}
    for spec in specs:
        numbers = spec.stop - spec.start
        usual = max(faint * math.sqrt(numbers), float(theirs[spec.start : spec.stop].norm()))
        length = float(mine[spec.start : spec.stop].norm()) / usual if usual else 1.0
        lengths[spec.name] = TensorLength(length, numbers)
    return lengths


def figures_of(found: Mapping[Part, Likeness]) -> dict[str, dict[str, float | list[float]]]:
    """For the database: what a result was judged by."""
    return {
        part: {"cosine": one.cosine, "length": one.length, "shares": list(one.shares)} for part, one in found.items()
    }


def judge(claimed: dict[Part, Likeness], twin: dict[Part, Likeness] | None = None) -> Finding:
    """Whether a claimed result may be an honest one.

    Args:
        claimed: against the recomputed path.
        twin: the deliberately blurred recomputation against the same path. Without it the claim is measured against
            perfection: valid then means valid, but invalid only that a twin must be computed.
    """
    figures = figures_of(claimed)
    for part, mine in claimed.items():
        other = twin[part] if twin else Likeness(1.0, 1.0, tuple(1.0 for _ in mine.shares))
        if reason := _fault(part, mine, other):
            return Finding(False, reason, figures)
    return Finding(True, "", figures)


def _fault(part: Part, mine: Likeness, twin: Likeness) -> str:
    longest, shortest = LENGTH * max(1.0, twin.length), min(1.0, twin.length) / LENGTH
    if not shortest <= mine.length <= longest:
        return f"its {part} part is {mine.length:.3g} times as long as recomputed, allowed are {shortest:.2f} to {longest:.2f}"
    if len(mine.shares) == 1:
        allowed = max(EXACT, ANGLE * (1 - twin.cosine))
        if 1 - mine.cosine > allowed:
            return f"its {part} part has a cosine of {mine.cosine:.4f} with the recomputed one, at least {1 - allowed:.4f} is needed"
    same = 1 - mine.cosine <= EXACT  # then stretches that can't be told apart, all in one direction, say nothing
    for number, (share, most) in enumerate(zip(mine.shares, twin.shares, strict=True)):
        needed = (LATER_SHARE if number else OPENING_SHARE) * min(1.0, most)
        if not same and most >= BLURRED and share < needed:
            which = f"stretch {number + 1} of {len(mine.shares)}"
            return f"its {part} part holds {max(0.0, share):.0%} of {which} of the recomputed steps, at least {needed:.0%} is needed"
    for name, tensor in mine.tensors.items():
        if tensor.length > (most := tensor.allowed(twin, name)):
            return f"its {name} is {tensor.length:.3g} times as long as recomputed, at most {most:.2f} is allowed"
    return ""


def expected_checks(first: int, last: int) -> float:
    """How many of a student's results `first` to `last` (counted from 1) are checked on average, if all are valid."""
    spread: Sequence[float] = [1.0]  # probability of each streak
    checks = 0.0
    for number in range(1, last + 1):
        following = [0.0] * (len(spread) + 1)
        for streak, chance in enumerate(spread):
            checked = chance * check_probability(streak)
            following[streak + 1] += checked
            following[streak] += chance - checked
            checks += checked if number >= first else 0.0
        spread = following
    return checks
