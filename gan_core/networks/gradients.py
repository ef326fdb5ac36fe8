"""Computes contributions. The only file that calls backward: one network in, its own gradient out.

Both kinds of contribution are built from the same two gradients, of the same batches, by a `Pass` over them: `Mean` adds the
gradients up, `Walk` takes a step with each.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn

from gan_core.data.images import ImageSet
from gan_core.devices.captured import Captured, is_recorded
from gan_core.devices.precision import computing, set_float32
from gan_core.layout import PARTS, Vectors
from gan_core.networks.inputs import Batch, blank, may_end, sizes_of, unit_by_unit
from gan_core.networks.losses import LOSSES, Loss
from gan_core.networks.models import Networks, flatten
from gan_core.networks.optimiser import adam, start_afresh, step
from gan_core.plan import Plan
from gan_core.policies.validation import edges, possible_edges
from gan_core.units import Measures, WorkUnit, first_of

Beat = Callable[[], None]
See = Callable[[int, Vectors], None]
Enough = Callable[[], bool]


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

    Spectral norm's estimate is brought up to date once a step, here (Miyato et al. 2018, algorithm 1).

    Returns:
        gradients (one for each of D's parameters), loss, real logits (N,), fake logits (N,)
    """
    d = networks.discriminator
    real_logits = d(real).float()
    with networks.estimates_kept():
        fake_logits = d(fake.detach()).float()
    value = loss.discriminator(real_logits, fake_logits)
    return torch.autograd.grad(value, tuple(d.parameters())), value.detach(), real_logits.detach(), fake_logits.detach()


def generator_gradient(networks: Networks, loss: Loss, fake: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """G's gradient of G's loss alone, through a frozen D. `fake` is G's output with its graph.

    Returns:
        gradients (one for each of G's parameters), loss
    """
    with frozen(networks.discriminator), networks.estimates_kept():
        value = loss.generator(networks.discriminator(fake).float())
        return torch.autograd.grad(value, tuple(networks.generator.parameters())), value.detach()


class Pass(ABC):
    """Goes through batches on one device, and keeps what comes of it there: nothing is read before the end.

    Args:
        networks: to compute with, as they stand.
    """

    def __init__(self, plan: Plan, networks: Networks) -> None:
        self.plan, self.networks, self.loss = plan, networks, LOSSES[plan.loss]
        self.generator = list(networks.generator.parameters())
        self.discriminator = list(networks.discriminator.parameters())
        self.sums = torch.zeros(4, device=networks.device)  # of losses and right guesses, over images
        self.images = 0
        set_float32(plan, networks.device)
        self._run = Captured(self._step, networks.device)

    @abstractmethod
    def compute(self, real: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is done with one batch; returns G's loss, D's loss, real logits, fake logits."""

    @classmethod
    def over(cls, plan: Plan, networks: Networks, units: Sequence[WorkUnit]) -> Self:
        """A new pass, for units of these sizes; the networks are to be filled afterwards, for a GPU may have recorded steps with
        them. It goes on with what it has recorded for the last lease, since that takes a while.
        """
        networks.generator.train()
        networks.discriminator.train()
        if not isinstance(known := networks.recorded, cls) or known.plan != plan:
            networks.recorded, known = None, cls(plan, networks)
        if is_recorded(networks.device):
            networks.recorded = known
        for size in {size for unit in units for size in sizes_of(plan, unit.images)}:
            known._run.record(blank(plan, size, networks.device))
        known.begin()
        return known

    def begin(self) -> None:
        """Forget what came of earlier batches."""
        self.sums.zero_()
        self.images = 0

    def take(self, batch: Batch) -> None:
        self._run(batch.tensors())
        self.images += len(batch)

    def _step(self, pixels: Tensor, flipped: Tensor, noise: Tensor) -> None:
        with computing(self.plan, self.networks.device):
            real = Batch(pixels, flipped, noise).real(self.plan, self.networks)
            g_loss, d_loss, real_logits, fake_logits = self.compute(real, noise)
            guesses = (real_logits > 0).sum(), (fake_logits < 0).sum()
            self.sums += torch.stack([g_loss * len(pixels), d_loss * len(pixels), *guesses])

    def take_in(self, other: "Pass") -> None:
        """Count another device's batches, too."""
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


class Mean(Pass):
    """Adds both networks' gradients up, at the weights as they stand: none is changed."""

    def __init__(self, plan: Plan, networks: Networks) -> None:
        super().__init__(plan, networks)
        self.totals = {part: [torch.zeros_like(t) for t in networks.tensors(part)] for part in PARTS}
        # The last gradients: were they freed at each batch, a CPU would get their memory anew, page by page, for 7 % of its time.
        self._last: object = None

    def begin(self) -> None:
        super().begin()
        for totals in self.totals.values():
            torch._foreach_zero_(totals)

    def compute(self, real: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fake = self.networks.generator(noise)
        d_gradient, d_loss, real_logits, fake_logits = discriminator_gradient(self.networks, self.loss, real, fake)
        g_gradient, g_loss = generator_gradient(self.networks, self.loss, fake)
        torch._foreach_add_(self.totals["discriminator"], d_gradient, alpha=len(real))
        torch._foreach_add_(self.totals["generator"], g_gradient, alpha=len(real))
        self._last = d_gradient, g_gradient
        return g_loss, d_loss, real_logits, fake_logits

    def mean(self) -> Vectors:
        return Vectors(*(flatten(self.totals[part]) / self.images for part in PARTS))


class Walk(Pass):
    """Ordinary alternating steps, D then G. Adam starts afresh, so the result depends on nothing but the weights and the units."""

    def __init__(self, plan: Plan, networks: Networks) -> None:
        super().__init__(plan, networks)
        self.g_adam = adam(self.generator, plan.learning_rate_g, plan)
        self.d_adam = adam(self.discriminator, plan.learning_rate_d, plan)

    def begin(self) -> None:
        super().begin()
        start_afresh(self.g_adam)
        start_afresh(self.d_adam)

    def compute(self, real: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fake = self.networks.generator(noise)
        d_gradient, d_loss, real_logits, fake_logits = discriminator_gradient(self.networks, self.loss, real, fake)
        step(self.d_adam, self.discriminator, d_gradient)
        g_gradient, g_loss = generator_gradient(self.networks, self.loss, fake)
        step(self.g_adam, self.generator, g_gradient)
        return g_loss, d_loss, real_logits, fake_logits


def mean_gradient(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    beat: Beat,
    enough: Enough | None = None,
) -> Mean:
    """Both networks' mean gradients over all images of the units.

    Spectral norm's estimates start afresh at each unit, so a lease of several units is the mean of its units and
    nothing else.
    """
    mean = Mean.over(plan, networks, units)
    networks.load(weights)
    for unit, batches in zip(units, unit_by_unit(plan, images, units, networks.device), strict=False):
        networks.settle()
        for number, batch in enumerate(batches, 1):
            mean.take(batch)
            beat()
            if enough and may_end(plan, unit.images, number) and enough():
                return mean
    return mean


def shared_gradient(
    plan: Plan, several: Sequence[Networks], images: ImageSet, units: Sequence[WorkUnit], weights: Vectors, beat: Beat
) -> tuple[Vectors, Pass]:
    """`mean_gradient` with the units dealt out to several devices of one machine; the same to rounding.

    Units, not batches: within a unit each batch finds the estimates of spectral norm that the one before has left.
    """
    hands = [units[i :: len(several)] for i in range(min(len(several), len(units)))]
    with ThreadPoolExecutor(len(hands), thread_name_prefix="device") as pool:
        futures = [
            pool.submit(mean_gradient, plan, networks, images, hand, weights, beat)
            for networks, hand in zip(several, hands, strict=False)
        ]
        first, *others = [future.result() for future in futures]
    mean = first.mean()
    sums = [mean.part(part) * first.images for part in PARTS]
    for other in others:
        mean = other.mean()
        torch._foreach_add_(sums, [mean.part(part) for part in PARTS], alpha=other.images)
        first.take_in(other)
    return Vectors(*(total / first.images for total in sums)), first


def local_steps(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    beat: Beat,
    see: See | None = None,
    enough: Enough | None = None,
) -> tuple[Vectors, Pass]:
    """The change of both networks after ordinary alternating steps through the units' batches."""
    walk = Walk.over(plan, networks, units)
    networks.load(weights)
    done, total = 0, sum(plan.batches_of(unit.images) for unit in units)
    shown = (possible_edges if enough else edges)(total) if see else ()
    for unit, batches in zip(units, unit_by_unit(plan, images, units, networks.device), strict=False):
        for number, batch in enumerate(batches, 1):
            walk.take(batch)
            done += 1
            beat()
            is_last = done == total or bool(enough and may_end(plan, unit.images, number) and enough())
            if see and (done in shown or is_last):
                see(done, networks.read())
            if is_last:
                break
        if is_last:
            break
    after = networks.read()
    return Vectors(after.generator - weights.generator, after.discriminator - weights.discriminator), walk


def contribute(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    units: Sequence[WorkUnit],
    weights: Vectors,
    beat: Beat = lambda: None,
    more: Sequence[Networks] = (),
    see: See | None = None,
    enough: Enough | None = None,
) -> tuple[Vectors, Measures]:
    """The contribution of one lease: what the plan's kind asks for, from these weights.

    Args:
        beat: called after each batch, so that a watcher sees progress; with several devices by a thread for each.
        more: networks on further devices of this machine. Gradients are shared out between them; local steps follow
            each other, and use the first device alone.
        see: shown the points of the way, each with the number of batches before it: for local steps the weights at the
            start and at each edge (`validation.edges`), for a gradient zeros and the gradient.
        enough: asked after each batch whether to stop there: then the contribution is that of the first so many images
            (`Measures.images`), the same as if there had been no more. Not asked of several devices at once.

    Returns:
        update directions for G and D; losses, images and seconds
    """
    started = time.perf_counter()
    if plan.contribution == "gradient":
        if more and len(units) > 1:
            vectors, done = shared_gradient(plan, (networks, *more), images, units, weights, beat)
        else:
            done = mean_gradient(plan, networks, images, units, weights, beat, enough)
            vectors = done.mean()
        if see:
            see(0, Vectors(*(torch.zeros_like(vectors.part(part)) for part in PARTS)))
            see(sum(plan.batches_of(unit.images) for unit in first_of(units, done.images)), vectors)
    else:
        if see:
            see(0, weights)
        vectors, done = local_steps(plan, networks, images, units, weights, beat, see, enough)
    return vectors, done.measures(time.perf_counter() - started)
