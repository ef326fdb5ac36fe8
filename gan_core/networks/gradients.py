"""Computes contributions. The only file that calls backward: one network in, its own gradient out.

Both kinds of contribution are built from the same two gradients. All randomness (noise, mirroring) comes from the
unit's seed and is drawn on the CPU, so that anybody can recompute a unit on any device.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from gan_core.data.images import ImageSet
from gan_core.layout import PARTS, Vectors
from gan_core.networks.losses import LOSSES, Loss
from gan_core.networks.models import Networks, flatten
from gan_core.plan import Plan
from gan_core.policies.validation import edges
from gan_core.units import Measures, WorkUnit

Beat = Callable[[], None]
See = Callable[[Vectors], None]


@contextmanager
def frozen(network: nn.Module) -> Generator[None]:
    """While this holds, no gradient reaches the network's parameters."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


def discriminator_gradient(
    networks: Networks,
    loss: Loss,
    real: Tensor,
    fake: Tensor,
) -> tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]:
    """D's gradient of D's loss alone. `fake` carries no graph, so nothing can reach G.

    Returns:
        gradients (one for each of D's parameters), loss, real logits (N,), fake logits (N,)
    """
    d = networks.discriminator
    real_logits, fake_logits = d(real), d(fake.detach())
    value = loss.discriminator(real_logits, fake_logits)
    return torch.autograd.grad(value, tuple(d.parameters())), value.detach(), real_logits.detach(), fake_logits.detach()


def generator_gradient(networks: Networks, loss: Loss, fake: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """G's gradient of G's loss alone, through a frozen D. `fake` is G's output with its graph.

    Returns:
        gradients (one for each of G's parameters), loss
    """
    with frozen(networks.discriminator):
        value = loss.generator(networks.discriminator(fake))
        return torch.autograd.grad(value, tuple(networks.generator.parameters())), value.detach()


def batches(plan: Plan, networks: Networks, images: ImageSet, unit: WorkUnit) -> Iterator[tuple[Tensor, Tensor]]:
    """(real images (b, C, S, S) in [-1, 1], noise (b, latent, 1, 1)) for each batch of the unit.

    A unit that isn't a multiple of the plan's batch is cut into batches of nearly the same size: Adam's step is as long
    for a batch of one image, where batch norm has nothing to compare it with, as for any other.
    """
    random = torch.Generator().manual_seed(unit.seed)
    for indices in np.array_split(np.array(unit.indices), plan.batches_of(unit.images)):
        real = images.batch(indices)
        if plan.mirror:
            flipped = torch.rand(len(real), 1, 1, 1, generator=random) < 0.5
            real = torch.where(flipped, real.flip(-1), real)
        noise = torch.randn(len(real), plan.latent_dim, 1, 1, generator=random)
        yield (
            real.to(networks.device, memory_format=networks.memory_format, non_blocking=True),
            noise.to(networks.device, non_blocking=True),
        )


class _Tally:
    """Sums of losses and accuracies over images; kept on the device, read once at the end."""

    def __init__(self, device: torch.device) -> None:
        self.sums, self.images = torch.zeros(4, device=device), 0

    def add(self, g_loss: Tensor, d_loss: Tensor, real: Tensor, fake: Tensor) -> None:
        n = len(real)
        self.images += n
        self.sums += torch.stack([g_loss * n, d_loss * n, (real > 0).sum(), (fake < 0).sum()])

    def take_in(self, other: "_Tally") -> None:
        self.sums += other.sums.to(self.sums.device)
        self.images += other.images

    def measures(self, seconds: float) -> Measures:
        g_loss, d_loss, real, fake = (self.sums / self.images).tolist()
        return Measures(
            images=self.images,
            seconds=seconds,
            g_loss=g_loss,
            d_loss=d_loss,
            d_real_accuracy=real,
            d_fake_accuracy=fake,
        )


def mean_gradient(
    plan: Plan, networks: Networks, images: ImageSet, units: Sequence[WorkUnit], beat: Beat
) -> tuple[Vectors, _Tally]:
    """Both networks' mean gradients over all images of the units, at the weights as they stand: none is changed.

    Spectral norm's estimates start afresh at each unit, so a lease of several units is the mean of its units and
    nothing else.
    """
    loss, tally = LOSSES[plan.loss], _Tally(networks.device)
    networks.generator.train()
    networks.discriminator.train()
    sums = {part: [torch.zeros_like(t) for t in networks.tensors(part)] for part in PARTS}
    for unit in units:
        networks.settle()
        for real, noise in batches(plan, networks, images, unit):
            fake = networks.generator(noise)
            d_gradient, d_loss, real_logits, fake_logits = discriminator_gradient(networks, loss, real, fake)
            g_gradient, g_loss = generator_gradient(networks, loss, fake)
            torch._foreach_add_(sums["discriminator"], d_gradient, alpha=len(real))
            torch._foreach_add_(sums["generator"], g_gradient, alpha=len(real))
            tally.add(g_loss, d_loss, real_logits, fake_logits)
            beat()
    return Vectors(*(flatten(sums[part]) / tally.images for part in PARTS)), tally


def shared_gradient(
    plan: Plan,
    several: Sequence[Networks],
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    beat: Beat,
) -> tuple[Vectors, _Tally]:
    """`mean_gradient` with the units dealt out to several devices of one machine; the same to rounding.

    Units, not batches: within a unit each batch finds the estimates of spectral norm that the one before has left.
    """
    for networks in several[1:]:  # `contribute` has filled the first
        networks.load(weights)
    hands = [units[i :: len(several)] for i in range(min(len(several), len(units)))]
    with ThreadPoolExecutor(len(hands), thread_name_prefix="device") as pool:
        futures = [
            pool.submit(mean_gradient, plan, networks, images, hand, beat)
            for networks, hand in zip(several, hands, strict=False)
        ]
        (mean, tally), *others = [future.result() for future in futures]
    sums = [mean.part(part) * tally.images for part in PARTS]
    for mean, more in others:
        tally.take_in(more)
        torch._foreach_add_(sums, [mean.part(part) for part in PARTS], alpha=more.images)
    return Vectors(*(total / tally.images for total in sums)), tally


def local_steps(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    beat: Beat,
    see: See | None = None,
) -> tuple[Vectors, _Tally]:
    """The change of both networks after ordinary alternating steps (D, then G) through the units' batches.

    Adam starts afresh, so the result depends on nothing but the weights and the units.
    """
    loss, tally = LOSSES[plan.loss], _Tally(networks.device)
    done, wanted = 0, edges(sum(plan.batches_of(unit.images) for unit in units)) if see else ()
    networks.generator.train()
    networks.discriminator.train()
    g_parameters, d_parameters = list(networks.generator.parameters()), list(networks.discriminator.parameters())
    g_adam = adam(g_parameters, plan.learning_rate_g, plan)
    d_adam = adam(d_parameters, plan.learning_rate_d, plan)
    for unit in units:
        for real, noise in batches(plan, networks, images, unit):
            fake = networks.generator(noise)
            d_gradient, d_loss, real_logits, fake_logits = discriminator_gradient(networks, loss, real, fake)
            step(d_adam, d_parameters, d_gradient)
            g_gradient, g_loss = generator_gradient(networks, loss, fake)
            step(g_adam, g_parameters, g_gradient)
            tally.add(g_loss, d_loss, real_logits, fake_logits)
            done += 1
            if see and done in wanted:
                see(networks.read())
            beat()
    after = networks.read()
    return Vectors(after.generator - weights.generator, after.discriminator - weights.discriminator), tally


def contribute(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    beat: Beat = lambda: None,
    more: Sequence[Networks] = (),
    see: See | None = None,
) -> tuple[Vectors, Measures]:
    """The contribution of one lease: what the plan's kind asks for, from these weights.

    Args:
        beat: called after each batch, so that a watcher sees progress; with several devices by a thread for each.
        more: networks on further devices of this machine. Gradients are shared out between them; local steps follow
            each other, and use the first device alone.
        see: shown the points of the way: for local steps the weights at the start and at each edge (`validation.edges`),
            for a gradient zeros and the gradient.

    Returns:
        update directions for G and D; losses, images and seconds
    """
    started = time.perf_counter()
    networks.load(weights)
    if plan.contribution == "gradient":
        if more and len(units) > 1:
            vectors, tally = shared_gradient(plan, (networks, *more), images, units, weights, beat)
        else:
            vectors, tally = mean_gradient(plan, networks, images, units, beat)
        if see:
            see(Vectors(*(torch.zeros_like(vectors.part(part)) for part in PARTS)))
            see(vectors)
    else:
        if see:
            see(weights)
        vectors, tally = local_steps(plan, networks, images, units, weights, beat, see)
    return vectors, tally.measures(time.perf_counter() - started)


def adam(parameters: list[nn.Parameter] | list[Tensor], learning_rate: float, plan: Plan) -> torch.optim.Adam:
    """The plan's Adam. Fused: one pass over the numbers instead of a dozen."""
    return torch.optim.Adam(parameters, lr=learning_rate, betas=(plan.beta1, plan.beta2), fused=True)


def warm_up(plan: Plan) -> None:
    """Make PyTorch load its optimisers now: the first one costs a second, which would look like a slow unit."""
    adam([torch.zeros(1)], plan.learning_rate_g, plan)


def step(optimiser: torch.optim.Optimizer, parameters: Sequence[Tensor], gradient: Sequence[Tensor]) -> None:
    """One optimiser step with this gradient, whatever order its numbers lie in."""
    for parameter, value in zip(parameters, gradient, strict=True):
        # The fused Adam goes through both as they lie in memory: some backends return kernels' gradients in another order.
        laid_out = value if value.stride() == parameter.stride() else torch.empty_like(parameter).copy_(value)
        parameter.grad = laid_out
    optimiser.step()
