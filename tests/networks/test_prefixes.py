"""A lease that ends early, at a batch's end, is the same as if it had had no more images: anybody can recompute it."""

import pytest
import torch

from gan_core.networks.gradients import contribute
from gan_core.networks.inputs import may_end, sizes_of
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.update import initial_state
from gan_core.policies.trails import Trail, decode_trail
from gan_core.policies.validation import edges, possible_edges
from gan_core.units import WorkUnit, first_of


@pytest.fixture
def plan(tiny):
    return tiny.changed(batch_size=8, images_per_unit=100, quorum=200, mirror=True, model="spectral")


def units(*sizes: int) -> tuple[WorkUnit, ...]:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple(
        WorkUnit(ordinal=n, epoch=0, indices=tuple(range(start, start + size)), seed=100 + n)
        for n, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )


@pytest.mark.parametrize("kind", ["local_steps", "gradient"])
@pytest.mark.parametrize("batches", [1, 2, 5, 9, 12, 13, 16, 20])
def test_what_comes_of_the_first_batches_is_what_comes_of_their_images_alone(plan, digits, kind, batches):
    plan, whole, weights = plan.changed(contribution=kind), units(100, 100), initial_state(plan).weights
    layout = layout_of(plan)

    def computed(some, most=None):
        trail, done = Trail(layout, some), []
        enough = None if most is None else lambda: len(done) >= most
        vectors, measures = contribute(
            plan, Networks(plan), digits, some, weights, lambda: done.append(1), see=trail.add, enough=enough
        )
        return vectors, measures, trail.encode()

    early, measured, trail = computed(whole, batches)
    assert 0 < measured.images < 200
    some = first_of(whole, measured.images)
    alone, told, same = computed(some)
    assert torch.equal(early.generator, alone.generator)
    assert torch.equal(early.discriminator, alone.discriminator)
    assert (measured.images, measured.g_loss, measured.d_real_accuracy) == (
        told.images,
        told.g_loss,
        told.d_real_accuracy,
    )
    assert trail == same
    decode_trail(trail, plan, layout, some)  # has the size that these units' trail must have


def test_units_are_cut_in_order_and_where_the_images_end():
    whole = units(10, 20, 30)
    assert [unit.images for unit in first_of(whole, 60)] == [10, 20, 30]
    assert [unit.images for unit in first_of(whole, 30)] == [10, 20]
    cut = first_of(whole, 11)
    assert [unit.indices for unit in cut] == [tuple(range(10)), (10,)]
    assert [unit.seed for unit in cut] == [100, 101]


def test_a_cut_leaves_the_batches_before_it_as_they_were(plan):
    """Nearly everywhere: where a cut unit would be cut into other batches, one more is computed."""
    for images in range(8, 400):
        sizes = sizes_of(plan, images)
        ends = [n for n in range(1, len(sizes) + 1) if may_end(plan, images, n)]
        assert len(sizes) in ends
        assert all(b - a <= 2 for a, b in zip([0, *ends], ends, strict=False))
        for n in ends:
            assert sizes_of(plan, sum(sizes[:n])) == sizes[:n]


def test_wherever_a_walk_ends_its_edges_were_shown():
    for most in range(1, 700, 7):
        for batches in range(1, most + 1):
            assert set(edges(batches)) <= {*possible_edges(most), batches}
