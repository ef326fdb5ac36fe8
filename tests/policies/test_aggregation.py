"""Rules for making one contribution out of many. Every test runs over every rule."""

import subprocess
import sys

import pytest
import torch

from gan_core.layout import Vectors
from gan_core.policies import aggregation
from gan_core.policies.aggregation import RULES

ROBUST = [name for name in RULES if name != "mean"]


def aggregated(rule, vectors, images=None):
    """Of these vectors, the first third of each as G's part."""
    total = RULES[rule]()
    for vector, n in zip(vectors, images or [1] * len(vectors), strict=True):
        total.add(Vectors(*vector.split([len(vector) // 3, len(vector) - len(vector) // 3])), n)
    result = total.result()
    return torch.cat([result.generator, result.discriminator])


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
@pytest.mark.parametrize("images", [[1] * 5, [8, 8, 3, 8, 1]])
def test_blocks_do_not_show(rule, images, monkeypatch):
    """Longer than one block, cut anywhere: the same result."""
    _, vectors = honest(5, length=1000)
    whole = aggregated(rule, vectors, images)
    monkeypatch.setattr(aggregation, "LOOKED_AT", 5 * 77)
    assert torch.allclose(aggregated(rule, vectors, images), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_added_is_an_error(rule):
    with pytest.raises(ValueError, match="nothing was added"):
        RULES[rule]().result()


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
def test_few_images_have_part_of_a_voice(rule):
    """Four contributions say 0 and four say 1; two of those had an eighth of the images."""
    values = [torch.full((30,), value) for value in (0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0)]
    result = aggregated(rule, values, [64, 64, 64, 64, 64, 64, 8, 8])
    assert (result < aggregated(rule, values) - 0.1).all()
    assert (aggregated(rule, values) == 0.5).all()


@pytest.mark.parametrize("rule", ["centered_clip", "multi_krum"])
def test_who_spoils_one_network_has_no_say_in_the_other(rule):
    """He turns G's part round and leaves D's honest, but for a mark in it: the mark is cut down or gone, too."""
    direction, vectors = honest(7, length=3000)
    marked = direction.clone()
    marked[1000:] += 0.1 * torch.randn(2000, generator=torch.Generator().manual_seed(99))
    mark = marked[1000:] - direction[1000:]
    alone = (aggregated(rule, [*vectors, marked])[1000:] - aggregated(rule, vectors)[1000:]) @ mark / (mark @ mark)
    marked[:1000] *= -100
    result = aggregated(rule, [*vectors, marked])
    assert (result[1000:] - aggregated(rule, vectors)[1000:]) @ mark / (mark @ mark) < 0.1 * alone
    assert (result - direction).norm() < 0.1 * direction.norm()


MEASURE = """
import sys, psutil, torch
from gan_core.layout import Vectors
from gan_core.policies.aggregation import RULES
torch.set_num_threads(1)
def peak():  # bytes: Windows, macOS and Linux each tell it in another way
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
rule, counts, lengths = RULES[sys.argv[1]], map(int, sys.argv[2:]), (60_000, 40_000)
for count in counts:  # the first one loads what is needed
    total = rule()
    for number in range(count):
        total.add(Vectors(*(torch.randn(length) for length in lengths)), 10)
    total.result()
    print(peak())
"""


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_memory_does_not_grow_with_the_number_of_contributions(rule):
    """Of 32 and of 500 contributions of a hundred thousand numbers (400 kB)."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, rule, "32", "500"], capture_output=True, text=True, check=True, timeout=120
    )
    few, many = map(int, done.stdout.split())
    assert many - few < 100e6
