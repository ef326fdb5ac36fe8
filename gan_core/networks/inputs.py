"""What a unit's batches are computed from: pixels, noise and flips, brought to the device once a unit.

All randomness comes from the unit's seed and is drawn on the CPU, so that anybody can recompute a unit on any device.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from gan_core.data.images import ImageSet
from gan_core.networks.models import Networks
from gan_core.plan import Plan
from gan_core.units import WorkUnit


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step sees, on the device. b images."""

    pixels: Tensor  # (b, S, S, C) uint8
    flipped: Tensor  # (b, 1, 1, 1) bool: which are shown mirrored
    noise: Tensor  # (b, latent, 1, 1)

    def __len__(self) -> int:
        return len(self.pixels)

    def real(self, plan: Plan, networks: Networks) -> Tensor:
        """The images (b, C, S, S) in [-1, 1], as they lie best in the device's memory."""
        real = self.pixels.to(torch.float32).div_(127.5).sub_(1).permute(0, 3, 1, 2)  # channels last already
        if plan.mirror:
            real = torch.where(self.flipped, real.flip(-1), real)
        return real.contiguous(memory_format=networks.memory_format)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.pixels, self.flipped, self.noise


def sizes_of(plan: Plan, images: int) -> list[int]:
    """The batches that a unit of so many images is cut into.

    A unit that isn't a multiple of the plan's batch is cut into batches of nearly the same size: Adam's step is as long
    for a batch of one image, where batch norm has nothing to compare it with, as for any other.
    """
    count = plan.batches_of(images)
    return [images // count + (i < images % count) for i in range(count)]


def largest_batch(plan: Plan) -> int:
    """Images of the largest batch that the plan's units are cut into."""
    return max(sizes_of(plan, plan.images_per_unit))


def may_end(plan: Plan, images: int, batches: int) -> bool:
    """Whether a unit of so many images, cut after so many of its batches, has just these batches."""
    sizes = sizes_of(plan, images)[:batches]
    return sizes_of(plan, sum(sizes)) == sizes


def blank(plan: Plan, size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors of a batch of so many images, to be filled."""
    pixels = torch.zeros(size, plan.image_size, plan.image_size, plan.channels, dtype=torch.uint8, device=device)
    flipped = torch.zeros(size, 1, 1, 1, dtype=torch.bool, device=device)
    return pixels, flipped, torch.zeros(size, plan.latent_dim, 1, 1, device=device)


def batches(plan: Plan, images: ImageSet, unit: WorkUnit, device: torch.device) -> list[Batch]:
    """A unit's batches, in order. One copy each of pixels, noise and flips goes to the device."""
    sizes = sizes_of(plan, unit.images)
    pixels = torch.from_numpy(images.raw(unit.indices))
    flipped = torch.zeros(unit.images, 1, 1, 1, dtype=torch.bool)
    noise = torch.empty(unit.images, plan.latent_dim, 1, 1)
    random = torch.Generator().manual_seed(unit.seed)
    cuts = list(pairwise(accumulate(sizes, initial=0)))
    for start, stop in cuts:  # flips before noise, batch by batch: the order is part of what a unit is
        if plan.mirror:
            flipped[start:stop] = torch.rand(stop - start, 1, 1, 1, generator=random) < 0.5
        noise[start:stop] = torch.randn(stop - start, plan.latent_dim, 1, 1, generator=random)
    there = [_sent(tensor, device) for tensor in (pixels, flipped, noise)]
    return [Batch(*(tensor[start:stop] for tensor in there)) for start, stop in cuts]


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(
        device, non_blocking=True
    )  # from memory that isn't pinned, the copy would be waited for


def unit_by_unit(
    plan: Plan, images: ImageSet, units: Sequence[WorkUnit], device: torch.device
) -> Iterator[list[Batch]]:
    """Each unit's batches. On NVIDIA's GPUs the next unit is read and drawn while this one computes."""
    if (
        device.type != "cuda"
    ):  # a CPU would only be taken from what computes; two threads on MPS may crash (pytorch issue 197805)
        for unit in units:
            yield batches(plan, images, unit, device)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="next-unit") as reader:
        coming = reader.submit(batches, plan, images, units[0], device)
        for unit in units[1:]:
            here, coming = coming.result(), reader.submit(batches, plan, images, unit, device)
            yield here
        yield coming.result()
