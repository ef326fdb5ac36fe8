"""The digit distance: how far drawn digits are from the real ones, in the features of a small net that never changes.

A Frechet distance as in Heusel et al. 2017 (arXiv:1706.08500), with a net for digits in place of Inception, and beside it
the kernel distance (KID) with its standard error. The net lies in this package, so a figure means the same on every
machine. `bench/digits_net.py` made it, from other digits than the 5,000 that a GAN learns from.
Not comparable with the classifier's distance that version 0.1 printed: docs/quality.md says how far they differ.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gan_core.data.images import ImageSet, kind_and_place
from gan_core.errors import QualityError
from gan_core.networks.drawing import draw
from gan_core.plan import Plan
from gan_core.quality.distances import frechet_distance, kernel_distance, moments

NET = Path(__file__).with_name("digits_net.safetensors")
FEATURES = 64
SIZE = 32  # pixels a side; other sizes are resized
PERFECT, READABLE = 1.6, 7.0  # one half of the real digits from the other; where a person reads nearly all of them
SAMPLES = 5_000  # as many generated images as there are digits: the distance is biased by the sample size


class DigitsNet(nn.Module):
    """Images (N, 1, SIZE, SIZE) in [-1, 1] → logits of the ten digits (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(1024, FEATURES),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Linear(FEATURES, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


@dataclass(frozen=True, slots=True)
class Distance:
    """How far samples are from the real digits; 0 is equal, lower is better."""

    frechet: float
    kid: float
    kid_error: float  # standard error

    def __str__(self) -> str:
        return f"{self.frechet:.1f}, KID {self.kid:.4f} ± {self.kid_error:.4f}"


class DigitsEvaluator:
    """The real digits' side of the distance. Raises QualityError for other data."""

    def __init__(self, images: ImageSet) -> None:
        if kind_and_place(images.name)[0] != "digits":
            raise QualityError(f"The digit distance is for the data `digits`, and this is {images.name}.")
        real = features_of(images.batch(np.arange(len(images))))
        self._moments = moments(real)
        self._centre, self._scale = real.mean(0), float(real.std(0).mean())
        self._real = self._plain(real)

    def distance(self, images: Tensor) -> Distance:
        """Of these images (N, C, S, S) in [-1, 1]."""
        features = features_of(images)
        frechet = frechet_distance(*self._moments, *moments(features))
        return Distance(frechet, *kernel_distance(self._real, self._plain(features)))

    def _plain(self, features: np.ndarray) -> np.ndarray:
        """Around 0, about 1 wide: what KID's kernel is made for."""
        return (features - self._centre) / self._scale


def distance_of(plan: Plan, average: Tensor, evaluator: DigitsEvaluator, samples: int = SAMPLES) -> Distance:
    """Of the averaged generator's images, from noise that is the same at every call."""
    noise = torch.randn(samples, plan.latent_dim, 1, 1, generator=torch.Generator().manual_seed(12_345))
    return evaluator.distance(draw(plan, average, noise))


@cache
def digits_net() -> DigitsNet:
    """The net in this package; computes in float32."""
    with torch.device("meta"):  # without numbers yet: the usual ones would move the program's random state
        net = DigitsNet()
    weights = {name: tensor.float() for name, tensor in safetensors.torch.load_file(NET).items()}
    net.load_state_dict(weights, assign=True)
    return net.to(memory_format=torch.channels_last).eval().requires_grad_(False)


def features_of(images: Tensor) -> np.ndarray:
    """Images (N, C, S, S) in [-1, 1] → features (N, FEATURES), float64."""
    net = digits_net().features
    return torch.cat([net(_framed(batch)) for batch in images.split(512)]).double().numpy()


def _framed(images: Tensor) -> Tensor:
    """Grey, at the net's size."""
    grey = images.mean(1, keepdim=True)
    return grey if grey.shape[-1] == SIZE else F.interpolate(grey, size=SIZE, mode="bilinear", antialias=True)
