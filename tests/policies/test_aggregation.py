"""Rules for making one contribution out of many. Every test runs over every rule."""

import tracemalloc

import pytest
import torch

from gan_core.policies.aggregation import BLOCK, RULES

ROBUST = [name for name in RULES if name != "mean"]


def aggregated(rule, vectors, images=None):
    total = RULES[rule]()
    for vector, n in zip(vectors, images or [1] * len(vectors), strict=True):
        total.add(vector, n)
    return total.result()


def honest(count, length=1000, seed=0):
    """Contributions around a common direction."""
    random = torch.Generator().manual_seed(seed)
    direction = torch.randn(length, generator=random)
    return direction, [direction + 0.1 * torch.randn(length, generator=random) for _ in range(count)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_identical_contributions_come_back_as_they_are(rule, count):
    vector = torch.randn(500, generator=torch.Generator().manual_seed(1))
    assert torch.equal(aggregated(rule, [vector.clone() for _ in range(count)], list(range(1, count + 1))), vector)


@pytest.mark.parametrize("rule", RULES)
def test_honest_contributions_lead_close_to_their_common_direction(rule):
    direction, vectors = honest(9)
    assert (aggregated(rule, vectors) - direction).norm() < 0.1 * direction.norm()


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_contributions_does_not_matter(rule):
    _, vectors = honest(7)
    assert torch.allclose(aggregated(rule, vectors), aggregated(rule, vectors[::-1]), atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_the_inputs_are_left_alone(rule):
    _, vectors = honest(5)
    before = [v.clone() for v in vectors]
    aggregated(rule, vectors)
    assert all(torch.equal(a, b) for a, b in zip(before, vectors, strict=True))


@pytest.mark.parametrize("rule", ROBUST)
@pytest.mark.parametrize(
    "attack",
    [lambda v: -v, lambda v: 1000 * v, lambda v: torch.full_like(v, 1e6)],
    ids=["flipped", "times 1000", "huge"],
)
def test_one_hostile_contribution_of_eight_is_bounded(rule, attack):
    direction, vectors = honest(7)
    result = aggregated(rule, [*vectors, attack(direction)])
    assert (result - direction).norm() < 0.35 * direction.norm()


def test_the_mean_is_not_robust_and_says_so():
    direction, vectors = honest(7)
    assert (aggregated("mean", [*vectors, 1000 * direction]) - direction).norm() > 10 * direction.norm()


def test_the_mean_is_weighted_by_images():
    result = aggregated("mean", [torch.tensor([0.0]), torch.tensor([3.0])], [100, 200])
    assert result.item() == pytest.approx(2.0)


def test_the_mean_equals_one_big_sum():
    _, vectors = honest(32)
    images = list(range(1, 33))
    expected = sum(v.double() * n for v, n in zip(vectors, images, strict=True)) / sum(images)
    assert torch.allclose(aggregated("mean", vectors, images).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_blocks_do_not_show(rule, monkeypatch):
    """Longer than one block, cut anywhere: the same result."""
    from gan_core.policies import aggregation

    _, vectors = honest(5, length=1000)
    whole = aggregated(rule, vectors)
    monkeypatch.setattr(aggregation, "BLOCK", 77)
    assert torch.allclose(aggregated(rule, vectors), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_added_is_an_error_and_an_empty_part_is_not(rule):
    with pytest.raises(ValueError, match="nothing was added"):
        RULES[rule]().result()
    assert aggregated(rule, [torch.zeros(0), torch.zeros(0)]).numel() == 0


@pytest.mark.parametrize("rule", RULES)
def test_memory_does_not_grow_with_the_number_of_contributions(rule):
    """One model's worth for the mean; for the others a block of each contribution, whatever the model's size."""
    import resource

    length = 4 * BLOCK
    total = RULES[rule]()
    total.add(torch.ones(length), 1)
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(40):
        total.add(torch.ones(length), 1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    tracemalloc.stop()
    assert grown < 10 * length * 4  # 40 vectors were added
