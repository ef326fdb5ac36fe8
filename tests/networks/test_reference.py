"""The reference trainer, held against loops written out by hand."""

import pytest
import torch

from gan_core.layout import PARTS
from gan_core.networks.gradients import contribute
from gan_core.networks.inputs import batches
from gan_core.networks.losses import LOSSES
from gan_core.networks.models import Networks, initial_weights
from gan_core.networks.reference import train_local, train_plain
from gan_core.networks.update import advance, aggregate_all, initial_state, step_lengths
from gan_core.policies.sampling import cut_units


def ordinary_loop(plan, images, iterations, fresh_adam):
    """Alternating GAN steps as in any tutorial; Adam starts anew at each unit if asked to."""
    networks, loss, position = Networks(plan), LOSSES[plan.loss], 0
    networks.load(initial_weights(plan))
    g, d = networks.generator.train(), networks.discriminator.train()

    def adams():
        betas = (plan.beta1, plan.beta2)
        return torch.optim.Adam(g.parameters(), plan.learning_rate_g, betas), torch.optim.Adam(
            d.parameters(), plan.learning_rate_d, betas
        )

    g_adam, d_adam = adams()
    for _ in range(iterations):
        (unit,), position = cut_units(plan, position, len(images))
        if fresh_adam:
            g_adam, d_adam = adams()
        for batch in batches(plan, images, unit, networks.device):
            real, fake = batch.real(plan, networks), g(batch.noise)
            d_adam.zero_grad()
            loss.discriminator(d(real), d(fake.detach())).backward()
            d_adam.step()
            g_adam.zero_grad()
            loss.generator(d(fake)).backward()
            g_adam.step()
    return networks.read()


def test_one_worker_with_local_steps_equals_an_ordinary_loop_whose_adam_is_reset_at_each_unit(tiny, digits):
    plan = tiny.changed(quorum=16, iterations=4)
    state = train_local(plan, digits)
    expected = ordinary_loop(plan, digits, 4, fresh_adam=True)
    # Not to the bit: weights travel as a change, and w + (w' - w) rounds.
    for part in PARTS:
        assert torch.allclose(state.weights.part(part), expected.part(part), rtol=1e-4, atol=1e-6), part


def test_the_plain_trainer_is_the_ordinary_loop(tiny, digits):
    plan = tiny.changed(quorum=16, iterations=4)
    state, expected = train_plain(plan, digits), ordinary_loop(plan, digits, 4, fresh_adam=False)
    for part in PARTS:
        assert torch.allclose(state.weights.part(part), expected.part(part), rtol=1e-4, atol=1e-6), part


def test_averaged_gradients_take_one_adam_step_an_iteration(tiny, digits):
    plan = tiny.changed(contribution="gradient", iterations=1)
    state = train_local(plan, digits)
    assert (state.steps, state.iteration, state.images) == (1, 1, 48)
    moved = (state.weights.generator - initial_weights(plan).generator).abs()
    assert moved.max() == pytest.approx(plan.learning_rate_g, rel=1e-3)  # Adam's first step is ± the learning rate


@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
def test_the_same_seed_gives_the_same_training_and_another_seed_another(tiny, digits, kind):
    plan = tiny.changed(contribution=kind)
    a, b, c = train_local(plan, digits), train_local(plan, digits), train_local(plan.changed(seed=1), digits)
    assert torch.equal(a.weights.generator, b.weights.generator)
    assert not torch.equal(a.weights.generator, c.weights.generator)


def test_epochs_end_after_so_many_passes(tiny, digits):
    state = train_local(tiny.changed(epochs=0.05, images_per_unit=100, quorum=100), digits)
    assert (state.iteration, state.position) == (3, 300)  # 250 images asked for; units are not cut short


def test_the_averaged_generator_lags_behind_by_its_half_life(tiny, digits):
    plan = tiny.changed(iterations=1, ema_half_life=16)  # a walk's images: of three machines, each walks 16
    state, start = train_local(plan, digits), initial_weights(plan)
    halfway = (start.generator + state.weights.generator) / 2
    assert torch.allclose(state.average, halfway, atol=1e-7)
    assert torch.equal(train_local(plan.changed(ema_half_life=0), digits).average, state.weights.generator)


@pytest.mark.parametrize("walks", [[128], [128] * 4, [128] * 500, [64, 192, 128]])
def test_the_average_counts_updates_not_the_class(tiny, walks):
    """Machines that walk side by side go no further than one: the average must not forget faster in a larger class."""
    plan = tiny.changed(ema_half_life=1_000)
    state, change = initial_state(plan), initial_weights(plan)
    start = state.average.clone()
    advance(plan, state, aggregate_all(plan, [(change, images) for images in walks]), 0)
    kept = 1 - (state.average - start).norm() / change.generator.norm()
    assert float(kept) == pytest.approx(0.5 ** (128 / 1_000), abs=0.02)


def test_an_average_of_gradients_is_one_update(tiny):
    plan = tiny.changed(contribution="gradient", ema_half_life=1_000)
    aggregate = aggregate_all(plan, [(initial_weights(plan), 128)] * 30)
    assert (aggregate.images, aggregate.walked) == (3_840, plan.batch_size)


def test_float16_weights_train_what_a_class_with_float16_weights_trains(tiny, digits):
    """Rounding on the way to the machines is part of the training, so the reference has it too."""
    exact, rounded = train_local(tiny, digits), train_local(tiny.changed(weights_codec="float16"), digits)
    assert not torch.equal(exact.weights.generator, rounded.weights.generator)
    assert torch.allclose(exact.weights.generator, rounded.weights.generator, atol=5e-3)


@pytest.mark.parametrize("kind", ["local_steps", "gradient"])
def test_honest_contributions_are_about_as_long_as_an_ordinary_step(tiny, digits, kind):
    """So a hundred times as much is none. A few steps, of a network that learns, are between a tenth and the whole way."""
    plan, found = tiny.changed(contribution=kind, quorum=16, iterations=8), []

    def watch(state, measures):
        found.append((step_lengths(plan, state), state.weights.clone()))

    train_local(plan, digits, watch)
    lengths, weights = found[-2]
    unit = next_unit(plan, digits, 7)
    contribution, _ = contribute(plan, Networks(plan), digits, [unit], weights)
    for part in PARTS:
        assert 0.1 * lengths[part] < float(contribution.part(part).norm()) < 10 * lengths[part], part


def next_unit(plan, images, iteration):
    return cut_units(plan, iteration * plan.quorum, len(images))[0][0]
