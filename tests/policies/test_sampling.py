"""From data set to units: every image exactly once an epoch, whatever the sizes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gan_core.errors import DataError
from gan_core.plan import Plan
from gan_core.policies.sampling import SAMPLERS, cut_units


def plan_for(sampler: str, per_unit: int, quorum: int) -> Plan:
    return Plan(sampler=sampler, batch_size=2, images_per_unit=per_unit, quorum=quorum)


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=60, deadline=None)
@given(images=st.integers(1, 400), per_unit=st.integers(2, 90), factor=st.integers(1, 4), epochs=st.integers(1, 3))
def test_an_epochs_units_hold_every_image_exactly_once(sampler, images, per_unit, factor, epochs):
    plan, labels, detail = plan_for(sampler, per_unit, per_unit * factor), np.arange(images) % 3, np.arange(images) % 7
    position, seen = 0, []
    while position < epochs * images:
        units, position = cut_units(plan, position, images, labels, detail=detail)
        assert sum(u.images for u in units) >= plan.quorum
        assert [u.ordinal for u in units] == list(range(len(units)))
        for unit in units:
            assert unit.images == per_unit
            seen += unit.indices
    assert_every_epoch_is_whole(seen, images, epochs)


def assert_every_epoch_is_whole(seen: list[int], images: int, epochs: int) -> None:
    for epoch in range(epochs):
        assert Counter(seen[epoch * images : (epoch + 1) * images]) == Counter(range(images))


def test_a_unit_goes_on_with_the_next_epoch_instead_of_being_short():
    plan = plan_for("sequential", 4, 12)
    units, position = cut_units(plan, 0, 10)
    assert [(u.epoch, u.indices) for u in units] == [
        (0, (0, 1, 2, 3)),
        (0, (4, 5, 6, 7)),
        (0, (8, 9, 0, 1)),
    ]
    assert position == 12


def test_a_unit_of_more_images_than_there_are_holds_some_of_them_twice():
    (unit,), position = cut_units(plan_for("sequential", 7, 7), 0, 3)
    assert unit.indices == (0, 1, 2, 0, 1, 2, 0)
    assert position == 7


@settings(max_examples=60, deadline=None)
@given(
    shards=st.lists(st.integers(1, 400), min_size=1, max_size=6), per_unit=st.integers(2, 90), batch=st.integers(2, 90)
)
def test_no_batch_is_smaller_than_half_of_the_plans(shards, per_unit, batch):
    """A step on two images would move the weights as far as one on sixty-four."""
    plan = Plan(batch_size=min(batch, per_unit), images_per_unit=per_unit, quorum=2 * per_unit)
    images, position = sum(shards), 0
    while position < 2 * images:
        units, position = cut_units(plan, position, images, shards=shards)
        for unit in units:
            smallest = unit.images // plan.batches_of(unit.images)
            assert smallest >= plan.batch_size // 2 or images < plan.images_per_unit


def test_a_unit_is_a_pure_function_of_plan_and_position():
    plan = plan_for("shuffled", 16, 48)
    assert cut_units(plan, 96, 1000) == cut_units(plan, 96, 1000)
    assert cut_units(plan, 96, 1000) != cut_units(plan.changed(seed=1), 96, 1000)


def test_no_two_units_share_a_seed():
    plan = plan_for("shuffled", 10, 5000)
    seeds = [u.seed for u in cut_units(plan, 0, 1000)[0]]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)


def test_every_epoch_has_another_order():
    plan = plan_for("shuffled", 100, 200)
    units, _ = cut_units(plan, 0, 100)
    assert units[0].indices != units[1].indices
    assert sorted(units[0].indices) == sorted(units[1].indices)


def test_stratified_units_hold_the_labels_evenly(digits):
    plan = plan_for("stratified", 100, 5000)
    for unit in cut_units(plan, 0, len(digits), digits.labels)[0]:
        counts = Counter(digits.labels[list(unit.indices)].tolist())
        assert min(counts.values()) >= 9
        assert max(counts.values()) <= 11


def test_stratified_without_labels_says_what_to_do():
    with pytest.raises(DataError, match="Choose `shuffled`"):
        cut_units(plan_for("stratified", 10, 10), 0, 100, None)


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=60, deadline=None)
@given(
    shards=st.lists(st.integers(1, 90), min_size=1, max_size=6), per_unit=st.integers(2, 40), epochs=st.integers(1, 3)
)
def test_with_shards_each_unit_stays_in_one_and_an_epoch_still_holds_every_image_once(
    sampler, shards, per_unit, epochs
):
    images = sum(shards)
    plan, labels, detail = plan_for(sampler, per_unit, per_unit), np.arange(images) % 3, np.arange(images) % 7
    ends, position, seen = np.cumsum(shards), 0, []
    while position < epochs * images:
        units, position = cut_units(plan, position, images, labels, None, shards, detail)
        for unit in units:
            in_shards = {int(np.searchsorted(ends, i, side="right")) for i in unit.indices}
            assert len(in_shards) == 1 or min(shards[n] for n in in_shards) < per_unit / 2
            assert unit.reach == max(unit.indices) + 1
            seen += unit.indices
    assert_every_epoch_is_whole(seen, images, epochs)


def test_with_shards_the_units_of_all_are_mixed():
    """So that a machine with the first shard finds something in nearly every iteration."""
    units, _ = cut_units(plan_for("shuffled", 10, 1000), 0, 1000, shards=[250] * 4)
    first = [unit.ordinal for unit in units if unit.reach <= 250]
    assert len(first) == 25
    assert first != list(range(25))
    assert max(np.diff(first)) < 25


def test_with_shards_off_units_are_drawn_from_all_and_say_what_they_need():
    plan = plan_for("shuffled", 100, 1000).changed(shards="off")
    units, _ = cut_units(plan, 0, 1000, shards=[250] * 4)
    assert [u.indices for u in units] == [u.indices for u in cut_units(plan, 0, 1000)[0]]
    assert all(unit.reach > 900 for unit in units)


def test_progressive_goes_from_simple_to_detailed_and_mixes_more_each_epoch():
    detail = np.random.default_rng(0).random(1000)
    plan = plan_for("progressive", 100, 1000)

    def middles(epoch: int) -> list[float]:
        units, _ = cut_units(plan, epoch * 1000, 1000, detail=detail)
        return [float(np.mean(detail[list(unit.indices)])) for unit in units]

    assert middles(0) == sorted(middles(0))
    spans = [middles(epoch)[-1] - middles(epoch)[0] for epoch in range(5)]
    assert spans[0] > 0.85 > spans[2] > 0.3
    assert abs(spans[4]) < 0.15


def test_progressive_without_detail_says_so():
    with pytest.raises(DataError, match="needs to know each image's detail"):
        cut_units(plan_for("progressive", 10, 10), 0, 100)
