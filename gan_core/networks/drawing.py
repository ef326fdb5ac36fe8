"""Draws images with a generator that was trained by others: its weights alone say what it draws."""

import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from gan_core.networks.models import MODELS, flatten, size_of
from gan_core.plan import Plan

STANDING = 1_024  # images from which the norm layers' numbers are computed


def standing_statistics(plan: Plan, generator: Tensor) -> Tensor:
    """The norm layers' means and variances (numbers,) for drawing: averages over batches of the same noise at every call.

    They follow from the weights, so no student's machine has a say in them. Source: Brock et al. 2018 (arXiv:1809.11096),
    appendix D, "standing statistics".

    Args:
        generator: G's flat weights (numbers,).
    """
    network = _network(plan, generator)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean over all batches
    noise = torch.randn(STANDING, plan.latent_dim, 1, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for piece in noise.split(plan.batch_size):
            network(piece)
    return flatten(_statistics(network))


@torch.no_grad()
def draw(plan: Plan, generator: Tensor, noise: Tensor, statistics: Tensor | None = None, batch: int = 256) -> Tensor:
    """Images (N, C, S, S) in [-1, 1] that a generator makes of this noise (N, latent, 1, 1).

    Args:
        generator: G's flat weights (numbers,).
        statistics: of its norm layers, from its file; None computes them.
    """
    network = _network(plan, generator).eval()
    numbers = standing_statistics(plan, generator) if statistics is None else statistics
    buffers = _statistics(network)
    for buffer, values in zip(buffers, numbers.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(values)
    return torch.cat([network(piece) for piece in noise.split(batch)])


def fixed_noise(plan: Plan, count: int = 64) -> Tensor:
    """The same noise (count, latent, 1, 1) at every call, so that pictures of one training can be compared."""
    return torch.randn(count, plan.latent_dim, 1, 1, generator=torch.Generator().manual_seed(plan.seed + 1))


def _network(plan: Plan, generator: Tensor) -> nn.Sequential:
    make, _ = MODELS[plan.model]
    network = make(size_of(plan)).to(memory_format=torch.channels_last)
    vector_to_parameters(generator, network.parameters())
    return network


def _statistics(network: nn.Module) -> list[Tensor]:
    return [buffer for buffer in network.buffers() if buffer.is_floating_point()]
