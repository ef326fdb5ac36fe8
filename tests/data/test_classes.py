"""Label-sorted data: units hold the data's classes all the same, and somebody is told."""

import logging
from collections import Counter

import numpy as np
import pytest
from fake_hub import Repo
from picture_files import numbered, parquet

from gan_core.coordinator.coordinator import Coordinator
from gan_core.data.classes import UNEVEN, unevenness
from gan_core.data.images import ImageSet, advice, next_units
from gan_core.units import Shard


def images_of(labels: np.ndarray | None, *shards: int) -> ImageSet:
    count = sum(shards)
    pixels = np.zeros((count, 2, 2, 1), np.uint8)
    return ImageSet("huggingface:ada/x", pixels, labels, "", (), shards=tuple(Shard(n, "") for n in shards))


@pytest.fixture
def plan(tiny):
    return tiny.changed(data="huggingface:ada/x", images_per_unit=50, quorum=200)


SORTED, MIXED = np.arange(1_000) // 100, np.arange(1_000) % 10


@pytest.mark.parametrize(
    ("labels", "sizes", "expected"),
    [
        (SORTED, [100] * 10, 0.9 - 0.12),
        (SORTED, [500, 500], 0.5 - 0.05),
        (MIXED, [500, 500], 0),
        (np.random.default_rng(0).integers(0, 10, 1_000), [100] * 10, 0),
        (np.random.default_rng(0).integers(0, 900, 1_000), [100] * 10, 0),  # many classes, few of each
        (np.zeros(1_000, int), [500, 500], 0),
        (None, [500, 500], 0),
        (SORTED, [], 0),
    ],
    ids=["a class each", "five each", "mixed", "by chance", "many classes", "one class", "no labels", "no shards"],
)
def test_unevenness_is_what_chance_does_not_explain(labels, sizes, expected):
    assert unevenness(labels, sizes) == pytest.approx(expected, abs=0.06)


def test_units_of_sorted_shards_hold_all_classes_and_the_epoch_every_image_once(plan):
    images, position, seen = images_of(SORTED, *[100] * 10), 0, Counter()
    while position < 1_000:
        units, position = next_units(plan, position, images)
        for unit in units:
            assert unevenness(np.concatenate([SORTED, SORTED[list(unit.indices)]]), [1_000, 50]) < UNEVEN
            assert len(set(SORTED[list(unit.indices)])) >= 7
            assert unit.reach == max(unit.indices) + 1
        seen.update(i for unit in units for i in unit.indices)
    assert seen == Counter(range(1_000))


def test_units_of_mixed_shards_stay_within_one(plan):
    for labels in (MIXED, None):
        units, _ = next_units(plan, 0, images_of(labels, 500, 500))
        assert all(len({i // 500 for i in unit.indices}) == 1 for unit in units)


def test_it_is_said_in_words(plan):
    images = images_of(SORTED, *[100] * 10)
    assert "sorted by class: in one, 78% of the images" in advice(plan, images)
    assert advice(plan.changed(shards="off"), images) == ""
    assert advice(plan, images_of(MIXED, 500, 500)) == ""
    assert advice(plan, images_of(None, 500, 500)) == ""
    kept = advice(plan.changed(sampler="sequential"), images_of(SORTED, 1_000))
    assert "sampler=sequential keeps it" in kept
    assert advice(plan.changed(sampler="sequential"), images_of(MIXED, 1_000)) == ""


def test_a_folder_for_each_class_read_in_order_is_told_too(tiny, open_, tmp_path):
    numbered(tmp_path / "a" / "cats", 40)
    numbered(tmp_path / "a" / "dogs", 40)
    images = open_(f"folder:{tmp_path / 'a'}")
    assert "Choose sampler=shuffled" in advice(tiny.changed(sampler="sequential"), images)
    assert advice(tiny, images) == ""


def test_the_coordinator_warns(classroom, tiny, hub, caplog):
    shards = {f"train-{n}.parquet": parquet(range(48 * n, 48 * n + 48), label=n) for n in range(2)}
    hub.repos["ada/x"] = Repo("dataset", shards)
    plan = tiny.changed(data="huggingface:ada/x", channels=3)
    with caplog.at_level(logging.WARNING), Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        assert "are sorted by class" in caplog.text
        units, _ = next_units(plan, 0, training.images)
        assert all(len({i // 48 for i in unit.indices}) == 2 for unit in units)
