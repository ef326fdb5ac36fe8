"""Networks of every size, and the flat form in which their numbers travel."""

import pytest
import torch

from gan_core.layout import PARTS
from gan_core.networks.models import MODELS, Networks, initial_weights, layout_of


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("channels", [1, 3])
def test_shapes_fit_at_every_size(tiny, model, size, channels):
    networks = Networks(tiny.changed(model=model, image_size=size, channels=channels))
    images = networks.generator(torch.randn(2, tiny.latent_dim, 1, 1))
    assert images.shape == (2, channels, size, size)
    assert images.abs().max() <= 1
    assert networks.discriminator(images).shape == (2,)


@pytest.mark.parametrize("model", MODELS)
def test_what_is_loaded_is_read_back(tiny, model):
    plan = tiny.changed(model=model)
    weights, networks, layout = initial_weights(plan), Networks(plan), layout_of(plan)
    networks.load(weights)
    again = networks.read()
    for part in PARTS:
        assert torch.equal(again.part(part), weights.part(part))
        assert weights.part(part).numel() == layout.length(part)


def test_convolutions_run_in_channels_last(tiny):
    networks = Networks(tiny)
    assert networks.discriminator[0].weight.is_contiguous(memory_format=torch.channels_last)
    out = networks.generator(torch.randn(2, tiny.latent_dim, 1, 1))
    assert networks.generator[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert out.shape == (2, 1, 32, 32)


def test_initialisation_is_the_papers(tiny):
    plan = tiny.changed(model="dcgan", generator_width=64, discriminator_width=64)
    weights, layout = initial_weights(plan), layout_of(plan)
    for spec in (*layout.generator, *layout.discriminator):
        values = weights.part(spec.name.split("/")[0])[spec.start : spec.stop]
        if len(spec.shape) == 4:
            assert values.mean().abs() < 0.01, spec.name
            assert values.std() == pytest.approx(0.02, rel=0.15), spec.name
        elif spec.name.endswith("weight"):
            assert values.mean() == pytest.approx(1, abs=0.02), spec.name
        else:
            assert values.abs().max() == 0, spec.name


def test_spectral_norm_follows_from_the_weights_alone(tiny):
    """Whatever was computed before, and whoever computed it: loaded anew, a discriminator says the same, to the bit."""
    plan = tiny.changed(model="spectral", discriminator_width=16)
    weights, fresh, used = initial_weights(plan), Networks(plan), Networks(plan)
    images = torch.rand(4, 1, 32, 32)
    for _ in range(5):
        used.discriminator(images)
    fresh.load(weights)
    used.load(weights)
    assert torch.equal(fresh.discriminator.eval()(images), used.discriminator.eval()(images))
    for layer in fresh.discriminator:
        if isinstance(layer, torch.nn.Conv2d):
            norm = torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2)
            assert float(norm) == pytest.approx(1, abs=0.05)
