"""Whether a result is the work that was asked for: honest ones of other devices pass, cheats don't."""

import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from gan_core.layout import PARTS, Vectors
from gan_core.networks import recomputation
from gan_core.networks.models import Networks, initial_weights, layout_of
from gan_core.networks.recomputation import check, recompute
from gan_core.policies.codecs import CODECS, decode, encode
from gan_core.policies.sampling import cut_units
from gan_core.policies.validation import (
    ALWAYS,
    LENGTH,
    Likeness,
    TensorLength,
    alike,
    check_probability,
    edges,
    expected_checks,
    judge,
    likeness,
)

KINDS = ("local_steps", pytest.param("gradient", marks=pytest.mark.slow))


@pytest.fixture(scope="module", params=KINDS)
def lease(request, tiny, digits):
    """(plan, units, weights): two units of 10 batches each, a network large enough to have directions."""
    plan = tiny.changed(
        contribution=request.param, generator_width=8, discriminator_width=8, images_per_unit=80, quorum=640
    )
    units, _ = cut_units(plan, 0, len(digits))
    return plan, units, initial_weights(plan)


@pytest.fixture(scope="module")
def kept() -> dict[tuple[str, ...], object]:
    """What was computed already, by kind and name: in whichever order the tests come, nothing is computed twice."""
    return {}


@pytest.fixture
def once(lease, kept):
    """Computes what has this name, or gives what was computed then."""

    def get(name: str, compute: Callable):
        key = (lease[0].contribution, name)
        if key not in kept:
            kept[key] = compute()
        return kept[key]

    return get


def computed(lease, digits, units, **how) -> Vectors:
    plan, _, weights = lease
    return recompute(plan, Networks(plan), digits, units, weights, **how)[0]


def finding_of(lease, digits, claimed: Vectors, codec="float16"):
    """Of a contribution that a class would get with this codec."""
    plan, units, weights = lease
    layout = layout_of(plan)
    sent = decode(encode(claimed, layout, codec, units[0].seed), layout, codec)
    return check(plan.changed(codec=codec), Networks(plan), digits, units[:2], weights, sent)


def shortened(unit, share: float):
    return replace(unit, indices=unit.indices[: round(share * unit.images)])


def scaled(vectors: Vectors, by: float) -> Vectors:
    return Vectors(by * vectors.generator, by * vectors.discriminator)


# How often


def test_everything_is_checked_until_ten_were_valid_then_ever_less():
    assert [check_probability(streak) for streak in range(ALWAYS)] == [1.0] * 10
    assert check_probability(10) == 0.1
    assert check_probability(200) == 0.005


def test_after_the_first_twenty_results_less_than_a_tenth_is_checked():
    assert 10 <= expected_checks(1, 20) < 12
    for last in (21, 40, 100, 400):
        assert expected_checks(21, last) / (last - 20) < 0.1


# Taking apart


def test_a_path_is_cut_into_stretches_that_grow_and_reach_its_end():
    for batches in range(1, 400):
        cuts = (0, *edges(batches))
        lengths = [after - before for before, after in pairwise(cuts)]
        assert cuts[-1] == batches
        assert min(lengths) >= 1
        assert batches == 1 or len(lengths) > 1  # or half of the work could not be seen
        assert lengths[-1] >= lengths[0] // 2


def test_shares_say_which_stretches_a_result_contains():
    stretches = torch.randn(4, 10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    told = likeness(stretches[0] + 0.5 * stretches[1] + 2 * stretches[3], stretches)
    assert told.shares == pytest.approx((1, 0.5, 0, 2), abs=1e-6)
    assert likeness(stretches.sum(0), stretches).cosine == pytest.approx(1)
    assert likeness(3 * stretches.sum(0), stretches).length == pytest.approx(3)


def test_a_stretch_that_even_the_twin_lost_is_not_held_against_anybody():
    strayed = Likeness(0.7, 1.0, (1.0, 0.02))
    assert judge({"generator": strayed}, {"generator": replace(strayed, shares=(1.0, 0.09))}).valid
    assert not judge({"generator": strayed}, {"generator": replace(strayed, shares=(1.0, 0.11))}).valid


def test_the_opening_must_match_more_closely_than_what_comes_later():
    """A copy of somebody else's work goes the same general way, too."""
    copied = Likeness(0.7, 1.0, (0.7, 0.7))
    assert "stretch 1 of 2" in judge({"generator": copied}).reason
    assert judge({"generator": replace(copied, shares=(0.85, 0.7))}).valid


def test_poison_on_top_of_honest_work_shows_in_its_length():
    finding = judge({"generator": Likeness(0.9, LENGTH + 0.01, (1.0, 1.0))})
    assert "1.51 times as long as recomputed" in finding.reason


def test_a_network_that_learns_nothing_accuses_nobody():
    """Such as a discriminator whose hinge is satisfied: zeros are the right answer then, and anything else is not."""
    nothing, something = torch.zeros(3, 100, dtype=torch.float64), torch.ones(100)
    assert judge({"discriminator": likeness(nothing[0], nothing)}).valid
    assert not judge({"discriminator": likeness(something, nothing)}).valid
    still = torch.stack([something.double(), nothing[0]])  # it stopped half way
    assert judge({"discriminator": likeness(something, still)}).valid


def test_a_twin_that_went_too_far_asks_for_no_more_than_the_whole():
    """It may hold a stretch many times over, where stretches lie so close together that they can't be told apart."""
    strayed = Likeness(0.7, 1.0, (0.85, 0.55))
    twin = {"generator": replace(strayed, shares=(5.2, 300.0))}
    assert judge({"generator": strayed}, twin).valid
    assert not judge({"generator": replace(strayed, shares=(0.79, 0.55))}, twin).valid


def test_who_came_to_the_same_point_is_not_asked_which_way():
    """A discriminator whose hinge is satisfied only coasts: all its stretches have one direction, and shares of them mean nothing."""
    arrived = Likeness(1 - 2e-14, 1.0, (1.1, 0.49, 0.05))
    assert judge({"discriminator": arrived}).valid
    assert not judge({"discriminator": replace(arrived, cosine=0.99)}).valid


def test_where_the_twin_strays_few_numbers_may_be_longer_by_chance_and_many_may_not():
    """36 numbers of a generator were 1.59 times as long on an honest machine, after a walk on which the twin kept 0.44."""

    def finding(length: float, numbers: int, cosine: float) -> bool:
        mine = Likeness(0.6, 1.0, (1.0, 1.0), {"7.weight": TensorLength(length, numbers)})
        return judge({"generator": mine}, {"generator": Likeness(cosine, 1.0, (1.0, 1.0))}).valid

    assert finding(1.6, 36, cosine=0.44)
    assert not finding(2.0, 36, cosine=0.44)
    assert not finding(1.6, 10_000, cosine=0.44)
    assert not finding(1.6, 36, cosine=1.0)


# Honest results


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("device", ["threads", pytest.param("library", marks=pytest.mark.rehearsal), "bfloat16"])
def test_honest_results_of_other_devices_and_codecs_are_valid(lease, digits, once, device, codec):
    _, units, _ = lease
    if device == "threads":
        torch.set_num_threads(2)
    try:
        with warnings.catch_warnings(action="ignore"), torch.backends.mkldnn.flags(enabled=device == "threads"):
            result = once(device, lambda: computed(lease, digits, units[:2], blurred=device == "bfloat16"))
    finally:
        torch.set_num_threads(1)
    assert finding_of(lease, digits, result, codec).reason == ""


def test_the_twin_is_rounded_but_takes_every_step(lease, digits):
    """If autocast kept its rounded copies, the twin would go on computing with the first step's weights."""
    plan, units, weights = lease
    _, track = recompute(plan, Networks(plan), digits, units[:2], weights)
    twin = alike(computed(lease, digits, units[:2], blurred=True), track, layout_of(plan))
    for likeness_of_part in twin.values():
        assert likeness_of_part.cosine < 0.999999
        assert likeness_of_part.length == pytest.approx(1, abs=0.1)
        assert min(likeness_of_part.shares) > 0.7


def test_a_valid_result_needs_no_twin(lease, digits, monkeypatch):
    """The second recomputation is made before an accusation, and only then."""
    made = []
    real = recomputation.recompute
    monkeypatch.setattr(
        recomputation, "recompute", lambda *args, **how: made.append(how.get("blurred")) or real(*args, **how)
    )
    assert finding_of(lease, digits, computed(lease, digits, lease[1][:2])).valid
    assert made == [None]
    assert not finding_of(lease, digits, computed(lease, digits, lease[1][2:4])).valid
    assert made == [None, None, True]


@pytest.mark.parametrize("part", PARTS)
def test_no_tensor_can_be_twice_as_long(lease, digits, part):
    """Not even one of a few numbers, which its part's length says nothing about."""
    plan, units, weights = lease
    layout = layout_of(plan)
    honest, track = recompute(plan, Networks(plan), digits, units[:2], weights)
    twin = alike(computed(lease, digits, units[:2], blurred=True), track, layout)
    assert judge(alike(honest, track, layout), twin).valid
    for spec in layout.part(part):
        spoilt = honest.clone()
        spoilt.part(part)[spec.start : spec.stop] *= 2
        assert not judge(alike(spoilt, track, layout), twin).valid, spec.name


# Cheats, one by one and in the long run


CHEATS = {
    "noise of the right length": lambda lease, digits, honest: Vectors(
        torch.randn_like(honest.generator) * honest.generator.square().mean().sqrt(),
        torch.randn_like(honest.discriminator) * honest.discriminator.square().mean().sqrt(),
    ),
    "nothing": lambda lease, digits, honest: scaled(honest, 0.0),
    "another student's units": lambda lease, digits, honest: computed(lease, digits, lease[1][2:4]),
    "a tenth of the batches": lambda lease, digits, honest: computed(
        lease, digits, [shortened(unit, 0.1) for unit in lease[1][:2]]
    ),
    "a tenth of the batches, made longer": lambda lease, digits, honest: scaled(
        computed(lease, digits, [shortened(unit, 0.1) for unit in lease[1][:2]]), 3.0
    ),
    "one of two units": lambda lease, digits, honest: computed(lease, digits, lease[1][:1]),
    "one of two units, made longer": lambda lease, digits, honest: scaled(
        computed(lease, digits, lease[1][:1]), 2**0.5
    ),
    "generator made up": lambda lease, digits, honest: Vectors(honest.generator.flip(0), honest.discriminator),
    "discriminator made up": lambda lease, digits, honest: Vectors(honest.generator, honest.discriminator.flip(0)),
    "the wrong way": lambda lease, digits, honest: scaled(honest, -1.0),
}


@pytest.fixture
def finding_about(lease, digits, once):
    """What is found about a cheat."""
    honest = once("honest", lambda: computed(lease, digits, lease[1][:2]))

    def finding(cheat: str, codec="float16"):
        claimed = once(cheat, lambda: CHEATS[cheat](lease, digits, honest))
        return once(f"{cheat}, {codec}", lambda: finding_of(lease, digits, claimed, codec))

    return finding


@pytest.mark.parametrize("codec", ["float16", pytest.param("int4", marks=pytest.mark.slow)])
@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_are_invalid_and_told_why(finding_about, cheat, codec):
    finding = finding_about(cheat, codec)
    assert not finding.valid
    assert finding.reason.startswith(("its generator part", "its discriminator part"))


@pytest.mark.slow
def test_last_iterations_result_is_invalid(lease, digits):
    """The same units from older weights: a machine that doesn't fetch the new ones."""
    plan, units, weights = lease
    moved = weights.clone()
    for number in range(2, 8):
        change, _ = recompute(plan, Networks(plan), digits, [units[number]], moved)
        factor = (
            1.0
            if plan.contribution == "local_steps"
            else float(0.1 * weights.generator.norm() / change.generator.norm())
        )
        moved = Vectors(
            moved.generator + factor * change.generator,
            moved.discriminator + factor * change.discriminator,
        )
    stale = computed(lease, digits, units[:2])
    assert not check(plan, Networks(plan), digits, units[:2], moved, stale).valid
    fresh, track = recompute(plan, Networks(plan), digits, units[:2], moved)
    assert judge(alike(fresh, track, layout_of(plan))).valid


@pytest.mark.slow
def test_in_simulated_classes_cheats_are_found_and_honest_work_is_never_accused(lease, digits, finding_about):
    """Really computed results; which of them are checked is simulated. `python -m bench credit` does it with many more."""
    honest = computed(lease, digits, lease[1][:2])
    blurred = computed(lease, digits, lease[1][:2], blurred=True)
    verdicts = {name: finding_about(name).valid for name in CHEATS}
    honest_verdicts = [finding_of(lease, digits, vectors).valid for vectors in (honest, blurred)]
    chance = random.Random(0)

    def found(verdicts: list[bool], results: int) -> bool:
        streak = 0
        for _ in range(results):
            if chance.random() < check_probability(streak):
                if not chance.choice(verdicts):
                    return True
                streak += 1
        return False

    for name, valid in verdicts.items():
        assert sum(found([valid], 30) for _ in range(100)) >= 95, name
        mostly_honest = sum(found([True, True, valid], 30) for _ in range(100))
        assert mostly_honest >= 95, name  # a third of the results is faked
    assert not any(found(honest_verdicts, 200) for _ in range(1_000))
