"""Drawing: what a generator draws follows from its weights, whatever any machine had in its norm layers."""

import pytest
import torch

from gan_core.networks.drawing import draw, fixed_noise, standing_statistics
from gan_core.networks.models import Networks, statistics_of
from gan_core.networks.reference import train_local


@pytest.mark.slow
def test_samples_are_those_of_training(tiny, digits):
    """A neighbour's samples were flat grey: its norm statistics never moved."""
    plan = tiny.changed(model="dcgan", iterations=30)
    weights = train_local(plan, digits).weights
    networks, noise = Networks(plan), fixed_noise(plan, 256)
    networks.load(weights)
    in_training = networks.generator.train()(noise).detach()
    drawn = draw(plan, weights.generator, noise)
    assert (drawn - in_training).square().mean().sqrt() < 0.1 * in_training.std()


def test_norm_statistics_are_the_same_at_every_call_and_no_flatter_than_the_data(tiny):
    networks = Networks(tiny)
    weights = networks.read().generator
    numbers = standing_statistics(tiny, weights)
    assert torch.equal(numbers, standing_statistics(tiny, weights.clone()))
    assert len(numbers) == statistics_of(tiny)[-1].stop
    noise = torch.randn(4_096, tiny.latent_dim, 1, 1)
    first = networks.generator[0](noise)  # what the first norm layer sees
    spec = next(s for s in statistics_of(tiny) if s.name.endswith("1.running_var"))
    assert numbers[spec.start : spec.stop].tolist() == pytest.approx(first.var((0, 2, 3)).tolist(), rel=0.2)
