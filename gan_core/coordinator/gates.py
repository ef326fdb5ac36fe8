"""Gates: refuse a contribution that differs too much from the others of its iteration, compared student by student.

A contribution leaves a sketch: its lengths, and its directions folded to a few thousand numbers with signs that nobody
knows beforehand. When a round is about to close, its sketches are compared. Every limit is a median over students, so
whoever is in the minority, however many machines he runs, moves no limit beyond what honest students show. Gates only
refuse: what passes is never changed.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from gan_core.layout import PARTS, Layout, Part, Vectors
from gan_core.plan import Plan
from gan_core.policies.trails import fold, random_signs

# Each limit is wide for what honest contributions showed when they were measured: the table in docs/policies.md.
STUDENTS = 3  # with fewer in a round nobody can say who of them is wrong
FOLDED = 1 << 16  # numbers of a part's sketch: cosines are right within 0.004
TOGETHER = 64  # sketches in a block of memory
TIMES = 4.0  # longer or shorter than the others; honest ones stayed within 2.3
SPREADS = 6.0  # median deviations of log lengths: where honest ones differ by more than TIMES, this many are taken
SCATTERS = 4.0  # ... of agreements: where honest ones ask for one thing and others for the contrary, fewer can be told
AGREES = 0.25  # share of the usual agreement: less is odd, and as much in the opposite direction refused the first time
TELLS = 5.0  # times chance (1/√numbers): usual agreement below which a direction says nothing
COPY = 1e-4  # 1 - cosine of a copy, at most; the nearest honest ones differed by 5e-4
NEARER = 0.02  # ... and of how much two contributions of this round usually differ
ROUNDING = 1e-6  # of a cosine of two sketches: where a copy's limit would be less, honest ones are as near
LATELY, OFTEN = 10, 3  # a student's latest contributions, and how many of them, and half of them, must be odd
ADVICE = "if this machine computed honestly, update classgan on it and start its worker again"


@dataclass(frozen=True, slots=True)
class Sketch:
    """What is kept of a contribution until its round closes."""

    contribution: int  # grows with every submit: of two equal ones, the larger is the copy
    student: str
    images: int
    lengths: Mapping[Part, float]
    directions: Mapping[Part, Tensor]  # (at most FOLDED,) float16, of length 1 (0 for a vector of length 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is odd about a contribution."""

    reason: str
    certain: bool  # no honest one looks like this; otherwise one in hundreds may


class Sketcher:
    """Makes sketches that can be compared with each other. The signs are drawn anew for each round, from no known seed."""

    def __init__(self, layout: Layout) -> None:
        random = torch.Generator()
        random.seed()  # from the system: a known one could be crafted against
        self._signs = random_signs(layout, random)
        self._room: dict[Part, list[Tensor]] = {part: [] for part in self._signs}  # rows that are still free

    def sketch(self, contribution: int, student: str, images: int, vectors: Vectors) -> Sketch:
        """The contribution's sketch."""
        lengths = {part: float(vectors.part(part).norm()) for part in self._signs}
        directions = {
            part: self._kept(part, _folded(vectors.part(part), signs, lengths[part]))
            for part, signs in self._signs.items()
        }
        return Sketch(contribution, student, images, lengths, directions)

    def _kept(self, part: Part, folded: Tensor) -> Tensor:
        """A copy in a row of a large block. What stays must not lie between the megabytes of what is read and dropped: they
        would not be given back.
        """
        if not self._room[part]:
            self._room[part] = list(torch.empty(TOGETHER, len(folded), dtype=torch.half))
        return self._room[part].pop().copy_(folded)


def _folded(vector: Tensor, signs: Tensor, length: float) -> Tensor:
    if math.isinf(length):  # finite numbers whose squares are not
        vector = vector / vector.abs().max()
    folded = fold(vector, signs, FOLDED)
    return folded / (float(folded.norm()) or 1.0)


class Gates:
    """A training's judgement of its rounds. Remembers whose contributions were odd lately: now and then may happen to anybody."""

    def __init__(self) -> None:
        self._lately: dict[str, dict[int, bool]] = defaultdict(dict)  # by student: contribution → whether it was odd

    def refusals(
        self, plan: Plan, sketches: Sequence[Sketch], at_least: Mapping[Part, float] = MappingProxyType({})
    ) -> dict[int, str]:
        """Contribution → reason, for those of a round that are to be refused. May be asked again as a round grows.

        Args:
            at_least: a length that is never too long, by part: an ordinary step's (`update.step_lengths`).
        """
        found = findings(plan, sketches, at_least)
        for sketch in sketches:
            lately = self._lately[sketch.student]
            lately[sketch.contribution] = sketch.contribution in found
            while len(lately) > LATELY:
                del lately[next(iter(lately))]
        return {
            sketch.contribution: finding.reason
            for sketch in sketches
            if (finding := found.get(sketch.contribution)) and (finding.certain or self._often(sketch.student))
        }

    def _often(self, student: str) -> bool:
        lately = self._lately[student].values()
        return sum(lately) >= max(OFTEN, len(lately) / 2)


def findings(
    plan: Plan, sketches: Sequence[Sketch], at_least: Mapping[Part, float] = MappingProxyType({})
) -> dict[int, Finding]:
    """What is odd about each of a round's contributions that don't look like the others; of several things the worst."""
    found: list[tuple[int, Finding]] = []
    if not sketches:
        return {}
    directions = {
        part: F.normalize(torch.stack([sketch.directions[part] for sketch in sketches]).float(), dim=1)
        for part in sketches[0].directions
    }
    found += _copies(sketches, directions)
    if len({sketch.student for sketch in sketches}) >= STUDENTS:
        found += _odd_directions(plan, sketches, directions) + _odd_lengths(plan, sketches, at_least)
    return dict(sorted(found, key=lambda pair: pair[1].certain))


def _copies(sketches: Sequence[Sketch], directions: Mapping[Part, Tensor]) -> list[tuple[int, Finding]]:
    """Those that repeat an earlier one, in both parts: of a discriminator that has learnt all it can, honest ones may be as near."""
    nearest: list[tuple[Part, Tensor, float]] = []
    repeats = torch.ones(len(sketches), len(sketches), dtype=torch.bool)
    near = ~repeats  # in one part at least
    for part, rows in directions.items():
        apart = 1 - rows @ rows.T
        pairs = apart[*torch.triu_indices(len(sketches), len(sketches), 1)]
        if len(pairs) < 3:  # of two contributions nobody knows how much they usually differ
            return []
        limit = min(COPY, NEARER * float(pairs.median()))
        if limit < ROUNDING:  # a discriminator that is wrong about every image asks for the same whatever they are
            continue
        nothing = torch.tensor([sketch.lengths[part] == 0 for sketch in sketches])  # has no direction to be compared
        near |= apart < limit
        repeats &= (apart < limit) | (nothing[:, None] & nothing)
        nearest.append((part, apart, limit))
    if not nearest:
        return []
    found, (part, apart, limit) = [], nearest[0]
    for i, j in (repeats & near).nonzero().tolist():
        sketch, other = sketches[i], sketches[j]
        if sketch.contribution > other.contribution:
            reason = (
                f"its {part} part repeats another contribution to this round: they differ by {max(0.0, float(apart[i, j])):.1g}, "
                f"at least {limit:.1g} is expected; compute every unit from its own images"
            )
            found.append((sketch.contribution, Finding(reason, certain=True)))
    return found


def _odd_lengths(plan: Plan, sketches: Sequence[Sketch], at_least: Mapping[Part, float]) -> list[tuple[int, Finding]]:
    """Those that are much longer than the others, for as many images; and those of which both networks' parts are much shorter.

    One part alone may be as short as it likes: a hinge discriminator that is right about all of a unit's images learns nothing
    from them.
    """
    found, short = [], defaultdict[int, int](int)
    least = _least_images(plan, sketches)
    for part in sketches[0].lengths:
        # A walk of n local steps gets longer with n, between √n and n; a mean gradient does not.
        power = 2 / 3 if plan.contribution == "local_steps" else 0.0
        sizes = [max(sketch.images, least) ** power for sketch in sketches]  # the first step is as long as any
        logs = [_log(sketch.lengths[part] / size) for sketch, size in zip(sketches, sizes, strict=True)]
        middle = _usual(sketches, logs)
        spread = _usual(sketches, [abs(log - middle) for log in logs]) if math.isfinite(middle) else math.inf
        if math.isinf(spread):
            continue
        limit = max(math.log(TIMES), SPREADS * spread)
        for sketch, size, log in zip(sketches, sizes, logs, strict=True):
            usual = math.exp(middle) * size
            if log > middle + limit and sketch.lengths[part] > at_least.get(part, 0.0):
                reason = (
                    f"its {part} part has length {sketch.lengths[part]:.3g}, for {sketch.images} images of this round {usual:.3g} is usual "
                    f"and at most {usual * math.exp(limit):.3g} is taken; {ADVICE}"
                )
                found.append((sketch.contribution, Finding(reason, certain=True)))
            short[sketch.contribution] += log < middle - limit and sketch.images >= least
    found += [
        (sketch.contribution, Finding(_too_short(sketch), certain=False))
        for sketch in sketches
        if short[sketch.contribution] == len(PARTS)
    ]
    return found


def _too_short(sketch: Sketch) -> str:
    lengths = " and ".join(f"{sketch.lengths[part]:.3g}" for part in PARTS)
    return f"its parts have lengths {lengths}, less than a {TIMES:g}th of what is usual in this round; {ADVICE}"


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _odd_directions(
    plan: Plan, sketches: Sequence[Sketch], directions: Mapping[Part, Tensor]
) -> list[tuple[int, Finding]]:
    """Those of which a part points elsewhere than most students' do.

    One opposed part is not certain: of a hinge discriminator that is right about nearly all images, some units ask for
    one thing and others for the contrary.
    """
    students, least = [sketch.student for sketch in sketches], _least_images(plan, sketches)
    reasons: dict[int, str] = {}
    telling, opposed = 0, defaultdict[int, int](int)
    for part, rows in directions.items():
        values = agreements(students, rows)
        usual = _usual(sketches, values)
        if usual < TELLS / math.sqrt(rows.shape[1]):
            continue
        telling += 1
        spread = _usual(sketches, [abs(value - usual) for value in values])
        limit = min(AGREES * usual, usual - SCATTERS * spread)
        for sketch, value in zip(sketches, values, strict=True):
            # A vector of length 0 has no direction: it is a matter of lengths.
            if value < limit and sketch.images >= least and sketch.lengths[part] > 0:
                opposed[sketch.contribution] += value < -AGREES * usual
                reasons[sketch.contribution] = (
                    f"its {part} part points elsewhere than the others' of this round: agreement {value:.3f}, "
                    f"{usual:.3f} is usual and at least {limit:.3f} is taken; {ADVICE}"
                )
    return [(id_, Finding(reason, 0 < telling == opposed[id_])) for id_, reason in reasons.items()]


def _least_images(plan: Plan, sketches: Sequence[Sketch]) -> float:
    """Images below which a contribution is too small to be like the others, and to do harm: a small shard's unit."""
    return min(plan.images_per_unit, _median([sketch.images for sketch in sketches])) / 2


def agreements(students: Sequence[str], directions: Tensor) -> list[float]:
    """For each contribution: the cosine with other students' directions that half of them reach.

    Whoever is honest has half of the others behind him as long as fewer than half of the class are hostile.

    Args:
        students: who made it, for each contribution; two different ones at least.
        directions: (contributions, numbers), rows of length 1.
    """
    names = sorted(set(students))
    mine = torch.tensor([names.index(student) for student in students])
    sums = torch.zeros(len(names), directions.shape[1]).index_add_(0, mine, directions)
    cosines = directions @ F.normalize(sums, dim=1).T  # (contributions, students)
    cosines[torch.arange(len(students)), mine] = -math.inf  # nobody's own voice counts: sorted to the front
    return cosines.sort(dim=1).values[:, 1 + (len(names) - 1) // 2].tolist()


def _usual(sketches: Sequence[Sketch], values: Sequence[float]) -> float:
    """The median over students: one voice each, however many contributions."""
    own: dict[str, list[float]] = defaultdict(list)
    for sketch, value in zip(sketches, values, strict=True):
        own[sketch.student].append(value)
    return _median([_median(values) for values in own.values()])


def _median(values: Sequence[float]) -> float:
    """The middle value; of an even number the lower one, which is always one of them."""
    return sorted(values)[(len(values) - 1) // 2]
