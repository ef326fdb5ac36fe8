"""bfloat16 as on a GPU, computed by the CPU here: honest results stay valid, and cheats stay found (`python -m bench credit`)."""

import pytest
import torch

from gan_core.devices import precision
from gan_core.devices.precision import computing, has_bfloat16
from gan_core.layout import PARTS
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, initial_weights
from gan_core.networks.recomputation import check
from gan_core.policies.sampling import cut_units


@pytest.fixture
def bfloat16_here(monkeypatch):
    """Give a CPU under another name what NVIDIA's GPUs have from Ampere on."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: device.index == 1)


@pytest.mark.parametrize("kind", ["local_steps", "gradient"])
@pytest.mark.parametrize("model", ["dcgan", "spectral"])
def test_mixed_precision_is_another_rounding_and_a_valid_contribution(tiny, digits, bfloat16_here, model, kind):
    plan = tiny.changed(model=model, contribution=kind, images_per_unit=80, quorum=80, mirror=True)
    units, weights = cut_units(plan, 0, len(digits))[0][:1], initial_weights(plan)
    mixed, measures = contribute(plan, Networks(plan, "cpu:1"), digits, units, weights)
    exact, _ = contribute(plan, Networks(plan), digits, units, weights)
    assert not torch.equal(mixed.generator, exact.generator)
    assert mixed.generator.dtype is torch.float32
    assert check(plan, Networks(plan), digits, units, weights, mixed).valid
    assert measures.images == 80


def test_whoever_recomputes_on_a_gpu_with_bfloat16_accuses_nobody_of_float32(tiny, digits, bfloat16_here):
    """Recomputed as the plan says, in bfloat16, the lease would be its own twin: no other rounding would be allowed."""
    plan = tiny.changed(contribution="gradient", images_per_unit=160, quorum=160)
    units, weights = cut_units(plan, 0, len(digits))[0][:1], initial_weights(plan)
    honest, _ = contribute(plan, Networks(plan), digits, units, weights)
    assert check(plan, Networks(plan, "cpu:1"), digits, units, weights, honest).valid


def test_float32_means_float32_everywhere(tiny, digits, bfloat16_here):
    plan = tiny.changed(precision="float32")
    units, weights = cut_units(plan, 0, len(digits))[0][:1], initial_weights(plan)
    there, _ = contribute(plan, Networks(plan, "cpu:1"), digits, units, weights)
    here, _ = contribute(plan, Networks(plan), digits, units, weights)
    assert all(torch.equal(there.part(part), here.part(part)) for part in PARTS)


def test_what_is_judged_and_normalised_stays_in_float32(tiny, bfloat16_here):
    """Losses, and the largest singular value that spectral norm divides by."""
    plan = tiny.changed(model="spectral")
    networks = Networks(plan, "cpu:1")
    with computing(plan, networks.device):
        assert networks.generator(torch.randn(2, plan.latent_dim, 1, 1)).dtype is torch.bfloat16
        weight = networks.discriminator[0].weight
    assert weight.dtype is torch.float32
    networks.load(initial_weights(plan))
    outside = networks.discriminator[0].weight
    networks.settle()
    with computing(plan, networks.device):
        inside = networks.discriminator[0].weight
    assert torch.equal(inside, outside)


def test_only_gpus_that_are_fast_with_it_use_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not has_bfloat16(torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert has_bfloat16(torch.device("cuda:0"))
    assert not has_bfloat16(torch.device("cpu"))
    assert not has_bfloat16(torch.device("mps"))
