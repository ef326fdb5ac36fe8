"""The class behaves as one computer: any number of machines gives the reference trainer's weights."""

import pytest
from classroom import same_bits

from gan_core.networks.reference import train_local


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
@pytest.mark.parametrize("workers", [*(pytest.param(n, marks=pytest.mark.rehearsal) for n in (1, 2, 4)), 7])
def test_after_20_iterations_the_weights_equal_the_reference_bit_for_bit(classroom, tiny, reference, workers, kind):
    plan = tiny.changed(contribution=kind, iterations=20, quorum=7 * 16, checkpoint_interval=5)
    with classroom.working(workers) as shifts:
        trained = classroom.train(plan)
    assert same_bits(trained.state, reference(plan))
    assert sum(shift.tally.units for shift in shifts) == 20 * 7


@pytest.mark.parametrize(
    "knobs",
    [
        {"codec": "float16"},
        pytest.param({"codec": "int8"}, marks=pytest.mark.slow),
        {"weights_codec": "float16"},
        {"codec": "int4", "weights_codec": "int4"},
        {"model": "spectral"},
        {"aggregation": "trimmed_mean"},
        pytest.param({"sampler": "stratified"}, marks=pytest.mark.slow),
        pytest.param({"images_per_unit": 50, "quorum": 120}, marks=pytest.mark.slow),
        pytest.param({"mirror": True}, marks=pytest.mark.slow),
    ],
    ids=lambda knobs: next(iter(knobs.values())).__str__(),
)
def test_whatever_the_plan_says_the_reference_does_the_same(classroom, tiny, digits, knobs):
    plan = tiny.changed(iterations=4, **knobs)
    with classroom.working(3):
        trained = classroom.train(plan)
    assert same_bits(trained.state, train_local(plan, digits))


@pytest.mark.slow
def test_gradients_with_several_units_a_lease_agree_to_rounding(classroom, tiny, digits):
    """The mean over a lease of four units is the mean of their means, but for the order of adding."""
    plan = tiny.changed(
        contribution="gradient", model="spectral", iterations=1, quorum=64, max_units_per_lease=4, target_seconds=3600
    )
    reference = train_local(plan.changed(max_units_per_lease=1), digits)
    with classroom.working(1) as (shift,):
        classroom.train(plan.changed(iterations=1), name="warm-up")  # from here on its speed is known
        trained = classroom.train(plan)
    assert shift.tally.leases < 8
    for part in (
        "generator.mean",
        "discriminator.mean",
    ):  # after one step Adam's mean is (1 - beta1) times the gradient
        ours, theirs = trained.state.moments[part], reference.moments[part]
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm(), part
