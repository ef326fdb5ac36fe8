"""FID with torchmetrics' Inception net, only where its weights lie already, and only of SAMPLES images on each side.

With fewer, Inception's 2,048 features have a covariance without full rank, and the figure isn't what others call FID.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gan_core.data.images import ImageSet

SAMPLES = 10_000
AT_ONCE = 64  # images that are in memory
INCEPTION = (
    "weights-inception-2015-12-05-6726825d.pth"  # as torch-fidelity names the file, in torch's folder of weights
)


def inception_net() -> int | nn.Module | None:
    """What torchmetrics' FID computes with, if it can without a download; else None."""
    weights = Path(torch.hub.get_dir()) / "checkpoints" / INCEPTION
    there = all(importlib.util.find_spec(name) for name in ("torchmetrics", "torch_fidelity"))
    return 2048 if there and weights.is_file() else None


def fid_for(images: ImageSet) -> "Fid | None":
    """FID from these images, if there are enough of them, and a net."""
    net = inception_net() if len(images) >= SAMPLES else None
    return None if net is None else Fid(images, net)


class Fid:
    """The real images' side, computed once."""

    def __init__(self, images: ImageSet, net: int | nn.Module) -> None:
        from torchmetrics.image.fid import FrechetInceptionDistance

        self._metric = FrechetInceptionDistance(feature=net, normalize=True, reset_real_features=False)
        chosen = np.sort(np.random.default_rng(0).permutation(len(images))[:SAMPLES])
        for start in range(0, SAMPLES, AT_ONCE):
            self._add(images.batch(chosen[start : start + AT_ONCE]), real=True)

    def of(self, samples: Iterable[Tensor]) -> float:
        """Of batches (N, C, S, S) in [-1, 1], SAMPLES images in all."""
        self._metric.reset()
        for batch in samples:
            self._add(batch, real=False)
        return float(self._metric.compute())

    def _add(self, batch: Tensor, real: bool) -> None:
        coloured = batch.expand(-1, 3, -1, -1) if batch.shape[1] == 1 else batch
        self._metric.update((coloured + 1) / 2, real=real)
