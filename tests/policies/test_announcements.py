"""What machines are told of the next weights: however they come by them, all have the same, near the coordinator's."""

import pytest
import torch

from gan_core.errors import PayloadError
from gan_core.layout import PARTS, Vectors
from gan_core.networks.models import initial_weights, layout_of
from gan_core.policies.announcements import announce, announced, changed
from gan_core.policies.codecs import encode, payload_size


@pytest.fixture
def plan(tiny):
    return tiny.changed(weights_codec="int4")


def moved(weights: Vectors, by: float, seed: int) -> Vectors:
    random = torch.Generator().manual_seed(seed)
    return Vectors(*(weights.part(p) + by * torch.randn(len(weights.part(p)), generator=random) for p in PARTS))


def apart(one: Vectors, other: Vectors) -> float:
    return sum(float((one.part(p) - other.part(p)).square().sum()) for p in PARTS) ** 0.5


@pytest.mark.parametrize("codec", ["float32", "float16"])
def test_other_codecs_announce_all_of_them_each_time(tiny, codec):
    plan, layout = tiny.changed(weights_codec=codec), layout_of(tiny)
    first = announce(plan, layout, 0, initial_weights(plan), None)
    second = announce(plan, layout, 1, moved(initial_weights(plan), 0.01, 1), first)
    assert second.change == b""
    assert second.payload == encode(moved(initial_weights(plan), 0.01, 1), layout, codec)


def test_who_follows_and_who_comes_later_have_the_very_same_weights(plan):
    layout, weights = layout_of(plan), initial_weights(plan)
    said = announce(plan, layout, 0, weights, None)
    mine = announced(plan, layout, said.payload)  # a machine that was there from the start
    for iteration in range(1, 30):
        weights = moved(weights, 0.01, iteration)
        said = announce(plan, layout, iteration, weights, said)
        assert len(said.change) == payload_size(layout, "int4") < len(said.payload)
        payload = changed(plan, layout, mine, said.change)
        assert payload == said.payload
        mine = announced(plan, layout, payload)
    assert all(torch.equal(mine.part(p), said.weights.part(p)) for p in PARTS)


def test_what_one_change_rounds_off_is_part_of_the_next(plan):
    """Machines stay as near as after the first step. If what is rounded off were lost, they would be five times as far after thirty."""
    layout, weights = layout_of(plan), initial_weights(plan)
    said, distances = announce(plan, layout, 0, weights, None), []
    for iteration in range(1, 31):
        weights = moved(weights, 0.01, iteration)
        said = announce(plan, layout, iteration, weights, said)
        distances.append(apart(said.weights, weights))
    assert max(distances[10:]) < 1.3 * distances[0]
    assert distances[0] < 0.2 * 0.01 * sum(len(weights.part(p)) for p in PARTS) ** 0.5  # a fifth of a step


def test_a_training_that_is_computed_again_announces_the_same(plan):
    layout = layout_of(plan)
    first = announce(plan, layout, 0, initial_weights(plan), None)
    after = moved(initial_weights(plan), 0.01, 1)
    assert announce(plan, layout, 1, after, first).change == announce(plan, layout, 1, after, first).change
    assert announce(plan, layout, 2, after, first).change != announce(plan, layout, 1, after, first).change


def test_an_iteration_that_is_undone_changes_nothing(plan):
    layout = layout_of(plan)
    first = announce(plan, layout, 0, initial_weights(plan), None)
    second = announce(plan, layout, 1, moved(initial_weights(plan), 0.01, 1), first)
    assert (second.again().payload, second.again().change) == (second.payload, b"")


def test_weights_that_are_no_numbers_are_not_announced(plan):
    layout, spoilt = layout_of(plan), initial_weights(plan)
    first = announce(plan, layout, 0, spoilt.clone(), None)
    spoilt.generator[0] = float("nan")
    with pytest.raises(PayloadError, match="generator holds numbers that are not finite"):
        announce(plan, layout, 1, spoilt, first)
