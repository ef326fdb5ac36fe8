"""Each network's gradient is its own: equal to autograd of the textbook loss, untouched by the other network."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.parametrizations import _SpectralNorm

from gan_core.layout import PARTS
from gan_core.networks import gradients
from gan_core.networks.gradients import contribute, discriminator_gradient, generator_gradient
from gan_core.networks.inputs import batches
from gan_core.networks.losses import LOSSES, Loss
from gan_core.networks.models import Networks, initial_weights
from gan_core.policies.sampling import cut_units


@pytest.fixture
def unit(tiny, digits):
    return cut_units(tiny, 0, len(digits))[0][0]


def shown(plan, networks, images, unit):
    """(real images, noise) of each batch."""
    return [(batch.real(plan, networks), batch.noise) for batch in batches(plan, images, unit, networks.device)]


def test_the_discriminators_gradient_does_not_change_when_the_generators_loss_is_scaled_by_1000(
    tiny, digits, unit, monkeypatch
):
    """The fault of a neighbour: G's loss leaked into D's gradient."""
    plan, networks, weights = tiny.changed(contribution="gradient"), Networks(tiny), initial_weights(tiny)
    before, _ = contribute(plan, networks, digits, [unit], weights)
    hinge = LOSSES["hinge"]
    monkeypatch.setattr(
        gradients, "LOSSES", {"hinge": Loss(hinge.discriminator, lambda fake: 1000 * hinge.generator(fake))}
    )
    after, _ = contribute(plan, networks, digits, [unit], weights)
    assert torch.equal(before.discriminator, after.discriminator)
    assert torch.allclose(1000 * before.generator, after.generator, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_equal_autograd_of_the_textbook_losses_on_the_whole_unit(tiny, digits, unit, loss):
    """Micro-batches must not show: spectral norm in D and frozen norm layers in G make the batch's cut irrelevant."""
    plan = tiny.changed(contribution="gradient", loss=loss, model="spectral")
    networks, weights = Networks(plan), initial_weights(plan)
    networks.load(weights)
    # Norm layers that look at the batch would tie the result to its cut: the test freezes them on both sides.
    networks.generator.eval()
    networks.discriminator.eval()
    for net in (networks.generator, networks.discriminator):
        net.train = lambda mode=True, net=net: net
    real, noise = (torch.cat(parts) for parts in zip(*shown(plan, networks, digits, unit), strict=True))

    networks.load(weights)
    vectors, _ = contribute(plan, networks, digits, [unit], weights)

    networks.load(weights)
    d, g = networks.discriminator, networks.generator
    if loss == "bce":
        d_loss = F.binary_cross_entropy_with_logits(
            d(real), torch.ones(len(real))
        ) + F.binary_cross_entropy_with_logits(d(g(noise)), torch.zeros(len(real)))
        g_loss = F.binary_cross_entropy_with_logits(d(g(noise)), torch.ones(len(real)))
    else:
        d_loss = torch.clamp(1 - d(real), min=0).mean() + torch.clamp(1 + d(g(noise)), min=0).mean()
        g_loss = -d(g(noise)).mean()
    for part, value, net in (("discriminator", d_loss, d), ("generator", g_loss, g)):
        expected = torch.cat(
            [t.reshape(-1) for t in torch.autograd.grad(value, list(net.parameters()), retain_graph=True)]
        )
        assert torch.allclose(vectors.part(part), expected, rtol=1e-4, atol=1e-6), part


def test_each_gradient_sees_only_its_own_network(tiny, digits, unit):
    networks = Networks(tiny)
    networks.load(initial_weights(tiny))
    real, noise = shown(tiny, networks, digits, unit)[0]
    fake = networks.generator(noise)
    discriminator_gradient(networks, LOSSES["hinge"], real, fake)
    generator_gradient(networks, LOSSES["hinge"], fake)
    assert all(
        p.grad is None and p.requires_grad
        for net in (networks.generator, networks.discriminator)
        for p in net.parameters()
    )


@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
def test_a_unit_can_be_recomputed_by_anybody(tiny, digits, unit, kind):
    """All randomness is the unit's: other networks' objects, other global seeds, the same bits."""
    plan = tiny.changed(contribution=kind, mirror=True)
    weights = initial_weights(plan)
    torch.manual_seed(1)
    first, _ = contribute(plan, Networks(plan), digits, [unit], weights)
    torch.manual_seed(2)
    used = Networks(plan)
    contribute(plan, used, digits, [replace(unit, seed=99)], weights)  # leftovers of an earlier unit must not matter
    second, _ = contribute(plan, used, digits, [unit], weights)
    assert all(torch.equal(first.part(p), second.part(p)) for p in PARTS)


def test_another_seed_gives_other_noise(tiny, digits, unit):
    weights = initial_weights(tiny)
    first, _ = contribute(tiny, Networks(tiny), digits, [unit], weights)
    second, _ = contribute(tiny, Networks(tiny), digits, [replace(unit, seed=unit.seed + 1)], weights)
    assert not torch.equal(first.generator, second.generator)


def of_sizes(plan, *sizes):
    """Units of so many images each, as shards' last ones may be."""
    units, _ = cut_units(plan, 0, 5_000, quorum=len(sizes) * plan.images_per_unit)
    return [replace(unit, indices=unit.indices[:size]) for unit, size in zip(units, sizes, strict=True)]


def test_no_step_is_taken_on_a_few_images(tiny, digits):
    """Seventeen images are two batches of eight and nine, not two of eight and one of a single image, which would move the
    weights as far as a whole one.
    """
    plan = tiny.changed(batch_size=8, images_per_unit=17, quorum=17)
    (unit,), _ = cut_units(plan, 0, len(digits))
    assert [len(real) for real, _ in shown(plan, Networks(plan), digits, unit)] == [9, 8]


def test_spectral_norms_estimate_takes_one_iteration_a_step(tiny, monkeypatch):
    """However often a step looks at the weights: with the real images, the generated ones, and for G."""
    plan, taken = tiny.changed(model="spectral"), []
    networks = Networks(plan)
    networks.load(initial_weights(plan))
    iterate = _SpectralNorm._power_method
    monkeypatch.setattr(_SpectralNorm, "_power_method", lambda self, *how: taken.append(how) or iterate(self, *how))
    real, fake = (
        torch.zeros(2, plan.channels, *2 * [plan.image_size]),
        networks.generator(torch.randn(2, plan.latent_dim, 1, 1)),
    )
    discriminator_gradient(networks, LOSSES["hinge"], real, fake)
    generator_gradient(networks, LOSSES["hinge"], fake)
    assert len(taken) == len(networks._norms) > 0
    assert all(norm.training for norm in networks._norms)


def test_a_gradient_over_two_units_is_their_mean_weighted_by_images(tiny, digits):
    plan = tiny.changed(contribution="gradient", model="spectral")
    weights = initial_weights(plan)
    units = of_sizes(plan, 16, 8)
    networks = Networks(plan)
    for net in (networks.generator, networks.discriminator):
        net.eval()
        net.train = lambda mode=True, net=net: net
    (a, ma), (b, mb), (both, m) = (
        contribute(plan, networks, digits, us, weights) for us in (units[:1], units[1:], units)
    )
    assert m.images == ma.images + mb.images == 24
    expected = (a.discriminator * 16 + b.discriminator * 8) / 24
    assert torch.allclose(both.discriminator, expected, rtol=1e-5, atol=1e-8)
    assert m.d_loss == pytest.approx((ma.d_loss * 16 + mb.d_loss * 8) / 24, rel=1e-5)


@pytest.mark.parametrize("model", ["dcgan", "spectral"])
@pytest.mark.parametrize("devices", [2, 3, 5])
def test_several_devices_of_one_machine_compute_what_one_does(tiny, digits, model, devices):
    """Units are shared out, also when there are more devices than units, or not as many for each."""
    plan = tiny.changed(contribution="gradient", model=model, quorum=64)
    units, weights = of_sizes(plan, 16, 16, 16, 8), initial_weights(plan)
    alone, a = contribute(plan, Networks(plan), digits, units, weights)
    first, *more = (Networks(plan) for _ in range(devices))
    together, b = contribute(plan, first, digits, units, weights, more=more)
    for part in PARTS:
        assert torch.allclose(together.part(part), alone.part(part), rtol=1e-4, atol=1e-7), part
    assert (b.images, b.d_loss, b.g_loss) == (a.images, pytest.approx(a.d_loss), pytest.approx(a.g_loss))


def test_local_steps_follow_each_other_on_the_first_device_whatever_else_is_there(tiny, digits, unit):
    weights = initial_weights(tiny)
    alone, _ = contribute(tiny, Networks(tiny), digits, [unit], weights)
    together, _ = contribute(tiny, Networks(tiny), digits, [unit], weights, more=[Networks(tiny)])
    assert torch.equal(together.generator, alone.generator)


def test_a_gradient_changes_no_weights_and_local_steps_return_what_they_changed(tiny, digits, unit):
    weights = initial_weights(tiny)
    networks = Networks(tiny)
    contribute(tiny.changed(contribution="gradient"), networks, digits, [unit], weights)
    assert torch.equal(networks.read().generator, weights.generator)
    change, _ = contribute(tiny, networks, digits, [unit], weights)
    assert change.generator.abs().max() > 0
    assert torch.equal(networks.read().generator - weights.generator, change.generator)


def test_the_measures_are_plausible(tiny, digits, unit):
    beats = []
    _, m = contribute(tiny, Networks(tiny), digits, [unit], initial_weights(tiny), lambda: beats.append(1))
    assert (m.images, len(beats)) == (16, 2)
    assert 0 <= m.d_real_accuracy <= 1
    assert 0 <= m.d_fake_accuracy <= 1
    assert m.seconds > 0


def test_a_step_does_not_depend_on_how_a_backend_lays_gradients_out(tiny):
    """PyTorch's own convolutions return kernels' gradients in another order of memory than oneDNN's; the fused Adam,
    which walks through memory, then moved the wrong weights.
    """
    moved = []
    for order in (torch.channels_last, torch.contiguous_format):
        random = torch.Generator().manual_seed(0)
        kernel = torch.nn.Parameter(torch.randn(4, 3, 2, 2, generator=random).to(memory_format=torch.channels_last))
        optimiser = gradients.adam([kernel], 0.1, tiny)
        for _ in range(3):
            gradient = torch.randn(4, 3, 2, 2, generator=random).to(memory_format=order)
            gradients.step(optimiser, [kernel], [gradient])
        moved.append(kernel.detach())
    assert torch.equal(*moved)
