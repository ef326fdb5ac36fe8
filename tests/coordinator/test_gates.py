"""What looks honest beside the others of its round, and what doesn't. Vectors are drawn: a common direction and each one's own noise."""

import math
import re

import pytest
import torch

from gan_core.coordinator.gates import FOLDED, LATELY, Gates, Sketcher, agreements, findings
from gan_core.layout import PARTS, Layout, TensorSpec, Vectors
from gan_core.networks.models import layout_of

HONEST_COSINE = 0.2  # between two honest ones: what a training shows once it is well under way


@pytest.fixture
def layout(tiny) -> Layout:
    return layout_of(tiny)


@pytest.fixture
def plan(tiny):
    return tiny


class Students:
    """Honest contributions to one round after another, and a sketch of whatever is sent."""

    def __init__(self, layout: Layout, seed: int = 0) -> None:
        self.layout, self.random, self.sent = layout, torch.Generator().manual_seed(seed), 0
        self.next_round()

    def next_round(self) -> None:
        self.sketcher = Sketcher(self.layout)
        self.common = {part: self.drawn(self.layout.length(part)) for part in PARTS}

    def drawn(self, length: int) -> torch.Tensor:
        return torch.randn(length, generator=self.random)

    def honest(self, units: int = 1) -> Vectors:
        own = math.sqrt(1 / HONEST_COSINE - 1)
        g, d = (math.sqrt(units) * (c + own * self.drawn(len(c))) for c in self.common.values())
        return Vectors(g, d)

    def sketch(self, student: str, vectors: Vectors, units: int = 1):
        self.sent += 1
        return self.sketcher.sketch(self.sent, student, 16 * units, vectors)


def networks(vectors: Vectors, factor: float) -> Vectors:
    return Vectors(vectors.generator * factor, vectors.discriminator * factor)


ATTACKS = {
    "sign flip": (lambda s: networks(s.honest(), -1), "points elsewhere"),
    "sign flip, a tenth": (lambda s: networks(s.honest(), -0.1), "points elsewhere|less than a 4th"),
    "times 1,000": (lambda s: networks(s.honest(), 1000), "at most .* is taken"),
    "times 5": (lambda s: networks(s.honest(), 5), "at most .* is taken"),
    "noise": (
        lambda s: Vectors(*(2.2 * s.drawn(len(c)) for c in s.common.values())),
        "points elsewhere",
    ),
    "zero": (lambda s: networks(s.honest(), 0), "less than a 4th"),
    "generator flipped": (
        lambda s: Vectors(-(v := s.honest()).generator, v.discriminator),
        "generator part points elsewhere",
    ),
}
AT_ONCE = ("sign flip", "sign flip, a tenth", "times 1,000", "times 5")


@pytest.mark.parametrize("hostile", [1, 2, 3])
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_hostile_minority_is_refused_and_nobody_else(attack, hostile, plan, layout):
    """From the third time on at the latest, with a sentence that says what is wrong."""
    send, words = ATTACKS[attack]
    students, gates = Students(layout), Gates()
    for number in range(5):
        sketches = [students.sketch(f"honest{n}", students.honest()) for n in range(8 - hostile)]
        sketches += [students.sketch(f"hostile{n}", send(students)) for n in range(hostile)]
        refused = gates.refusals(plan, sketches)
        theirs = {sketch.contribution for sketch in sketches if sketch.student.startswith("hostile")}
        assert set(refused) == theirs if number >= 2 or attack in AT_ONCE else set(refused) <= theirs
        for reason in refused.values():
            assert re.search(words, reason), reason
        students.next_round()


def test_of_two_equal_contributions_the_later_one_is_refused(plan, layout):
    students = Students(layout)
    sketches = [students.sketch(f"s{n}", students.honest()) for n in range(3)]
    original = students.honest()
    sketches.append(students.sketch("author", original))
    sketches.append(students.sketch("copier", networks(original, 1.01)))
    assert [sketches[-1].contribution] == list(Gates().refusals(plan, sketches))


@pytest.mark.parametrize("count", [1, 2, 3, 8, 30])
def test_honest_ones_pass(count, plan, layout):
    """Also with leases of very different sizes, and an epoch's last unit of a few images."""
    for seed in range(30):
        students = Students(layout, seed)
        for _ in range(2):
            units = [1 + n * seed % 8 for n in range(count)]
            sketches = [students.sketch(f"s{n}", students.honest(u), u) for n, u in enumerate(units)]
            few = Vectors(*(0.1 * students.drawn(layout.length(part)) for part in PARTS))
            students.sent += 1
            sketches.append(students.sketcher.sketch(students.sent, "s0", 2, few))
            assert findings(plan, sketches) == {}
            students.next_round()


def test_one_student_with_many_machines_has_one_voice(plan, layout):
    """Forty contributions of one login can't outvote four students."""
    students = Students(layout)
    sketches = [students.sketch(f"honest{n}", students.honest()) for n in range(4)]
    wrong = [students.sketch("hostile", networks(students.honest(), -1)) for _ in range(40)]
    assert set(Gates().refusals(plan, sketches + wrong)) == {sketch.contribution for sketch in wrong}


@pytest.mark.parametrize("seed", range(40))
def test_no_minority_gets_an_honest_one_refused(seed, plan, layout):
    """Three of eight agree on whatever they like: on one vector, on the contrary of the class, on a single victim's contrary."""
    students, gates = Students(layout, seed), Gates()
    for _ in range(3):
        honest = [students.honest() for _ in range(5)]
        mean = Vectors(*(sum(h.part(p) for h in honest) / 5 for p in PARTS))
        victim = honest[0]
        plot = (
            networks(mean, -3),
            networks(mean, 3),
            networks(victim, -1),
            networks(students.honest(), 0),
        )[seed % 4]
        sketches = [students.sketch(f"honest{n}", vectors) for n, vectors in enumerate(honest)]
        sketches += [students.sketch(f"hostile{n}", networks(plot, 1 + n / 10)) for n in range(3)]
        refused = gates.refusals(plan, sketches)
        assert not {s.contribution for s in sketches if s.student.startswith("honest")} & set(refused)
        students.next_round()


def test_two_students_alone_can_not_be_told_apart(plan, layout):
    students = Students(layout)
    sketches = [students.sketch("a", students.honest()), students.sketch("b", networks(students.honest(), -1))]
    assert findings(plan, sketches) == {}


def test_of_three_students_two_decide(plan, layout):
    students = Students(layout)
    sketches = [students.sketch(f"s{n}", students.honest()) for n in range(2)]
    sketches.append(students.sketch("hostile", networks(students.honest(), -1)))
    assert list(Gates().refusals(plan, sketches)) == [sketches[-1].contribution]


def test_now_and_then_may_happen_to_anybody(plan, layout):
    """What is odd, but not impossible, passes; not if it is the third time and half of what this student sent lately."""
    students, gates = Students(layout), Gates()

    def refused(odd: bool) -> int:
        vectors = ATTACKS["zero"][0](students) if odd else students.honest()
        sketches = [students.sketch(f"s{n}", students.honest()) for n in range(5)] + [students.sketch("x", vectors)]
        count = len(gates.refusals(plan, sketches))
        assert len(gates.refusals(plan, sketches)) == count  # asked again, the answer is the same
        students.next_round()
        return count

    assert [refused(odd=True) for _ in range(4)] == [0, 0, 1, 1]
    assert [refused(odd=False) for _ in range(LATELY)] == [0] * LATELY
    assert [refused(odd=n % 3 == 0) for n in range(20)] == [0] * 20
    assert [refused(odd=True) for _ in range(4)][-1] == 1


def test_a_discriminator_that_is_right_about_everything_accuses_nobody(plan, layout):
    """Some units ask for nothing, others for single images' sake: lengths are wild, and directions chance."""
    students = Students(layout)
    for _ in range(20):
        sketches = []
        for n in range(8):
            vectors = students.honest()
            vectors.discriminator = students.drawn(len(vectors.discriminator)) * (0, 1, 10, 100)[n % 4]
            sketches.append(students.sketch(f"s{n}", vectors))
        assert findings(plan, sketches) == {}
        students.next_round()


def test_a_class_that_is_not_of_one_mind_accuses_nobody(plan, layout):
    """From agreeing well to not at all, without a gap: whoever is last is not therefore wrong."""
    students = Students(layout)
    sketches = []
    for n, share in enumerate((1.0, 0.9, 0.8, 0.6, 0.4, 0.3, 0.1, 0.0)):
        vectors = students.honest()
        noise = students.drawn(len(vectors.generator))
        vectors.generator = share * students.common["generator"] + math.sqrt(1 - share**2) * noise
        sketches.append(students.sketch(f"s{n}", vectors))
    assert findings(plan, sketches) == {}


def test_a_folded_sketch_keeps_cosines_and_no_two_rounds_fold_alike():
    length = 3 * FOLDED + 17
    layout = Layout((TensorSpec("generator/w", (length,), 0, length),), (TensorSpec("discriminator/w", (1,), 0, 1),))
    random = torch.Generator().manual_seed(0)
    a = torch.randn(length, generator=random)
    b = a + 2 * torch.randn(length, generator=random)
    sketches = [
        [sketcher.sketch(n, "s", 1, Vectors(v, torch.ones(1))).directions["generator"].float()
         for n, v in enumerate((a, b))]
        for sketcher in (Sketcher(layout), Sketcher(layout))
    ]  # fmt: skip
    true = float(torch.nn.functional.cosine_similarity(a, b, dim=0))
    huge = Vectors(torch.full((length,), 3e38), torch.ones(1))
    assert float(Sketcher(layout).sketch(9, "s", 1, huge).directions["generator"].float().norm()) == pytest.approx(
        1, abs=0.01
    )
    for first, second in sketches:
        assert float(first @ second) == pytest.approx(true, abs=0.02)
    assert abs(float(sketches[0][0] @ sketches[1][0])) < 0.02


def test_huge_numbers_do_not_spoil_a_comparison(plan, layout):
    """Finite, and yet their squares are not."""
    students = Students(layout)
    sketches = [students.sketch(f"s{n}", students.honest()) for n in range(4)]
    sketches.append(students.sketch("x", networks(students.honest(), 1e37)))
    assert list(Gates().refusals(plan, sketches)) == [sketches[-1].contribution]


def test_agreement_is_what_half_of_the_others_reach():
    directions = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert agreements(["a", "b", "c", "d"], directions) == pytest.approx([0.0, 0.0, 0.0, -1.0])
    assert agreements(["a", "b", "b", "d"], directions)[0] == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("students", [1, 4])
def test_where_all_ask_for_the_very_same_nobody_has_copied(layout, plan, students):
    """As late in a training that has failed: each image moves the discriminator the same way, up to rounding."""
    s = Students(layout)

    def same() -> Vectors:
        return Vectors(*(common + 1e-5 * s.drawn(len(common)) for common in s.common.values()))

    round_ = [s.sketch(f"student{n % students}", same()) for n in range(8)]
    assert not findings(plan, round_)


def test_what_is_no_longer_than_an_ordinary_step_is_never_too_long(layout, plan):
    """A discriminator that is right about everything: what it learns is rounding, and one unit's may be many times another's."""
    s = Students(layout)
    round_ = [s.sketch(f"s{n}", networks(s.honest(), 1e-9)) for n in range(4)]
    round_ += [s.sketch("grace", networks(s.honest(), 6e-9))]
    assert set(findings(plan, round_)) == {round_[-1].contribution}
    assert not findings(plan, round_, dict.fromkeys(PARTS, 0.001))
    long = s.sketch("mallory", networks(s.honest(), 1e3))
    assert set(findings(plan, [*round_, long], dict.fromkeys(PARTS, 0.001))) == {long.contribution}


def test_two_discriminators_that_ask_for_the_same_have_not_copied_while_their_generators_differ(layout, plan):
    s = Students(layout)
    round_ = [s.sketch(f"s{n}", s.honest()) for n in range(4)]
    twins = [s.honest() for _ in range(2)]
    twins[1].discriminator = twins[0].discriminator * 1.01
    assert not findings(plan, [*round_, *(s.sketch(f"t{n}", twin) for n, twin in enumerate(twins))])


def test_who_copies_where_the_discriminator_learns_nothing_is_found(layout, plan):
    s = Students(layout)
    made = [Vectors(v.generator, 0 * v.discriminator) for v in (s.honest() for _ in range(4))]
    round_ = [s.sketch(f"s{n}", vectors) for n, vectors in enumerate([*made, made[0]])]
    assert set(findings(plan, round_)) == {round_[-1].contribution}
