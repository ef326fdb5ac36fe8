"""Quality figures for any data, without a download: how far the samples are from the real images, and how varied.

Protocol, for each figure SAMPLES real and SAMPLES generated images, chosen from the same seeds at every call:

- **frechet**, the random-feature distance: the Frechet distance (Heusel et al. 2017, arXiv:1706.08500, eq. 6) in the features of a convolutional net
  with random weights from a fixed seed. Random features tell good samples from bad ones where no net trained on such
  images is at hand (Naeem et al. 2020, arXiv:2002.09797, section 4.2). 0 is equal; lower is better.
- **kid**: the kernel distance in the same features (Bińkowski et al. 2018, arXiv:1801.01401), with its standard error,
  **kid_error**. It has no bias from the number of images.
- **wasserstein**: the sliced Wasserstein distance of 7x7 patches on each level of a Laplacian pyramid, times 1,000
  (Karras et al. 2018, arXiv:1710.10196, section 5), here with fewer images, patches and directions. Lower is better.
- **diversity**: how far apart nearest neighbours are among the samples, as a share of the same among real images, in
  the features above. Near 1 is as varied as the data; near 0, many samples are copies of each other: mode collapse.
  It doesn't see kinds that are missing. In the spirit of the birthday paradox test (Arora and Zhang 2017, arXiv:1706.08224).
- **coverage**: the share of real images with a sample nearer than their NEIGHBOURS-th nearest real one, in those features
  (Naeem et al. 2020, section 3.2). Above 0.9 for other real images; low when whole kinds of images are missing.
- **fid**: see gan_core/quality/fid.py; of more samples than the others.

Comparable between evaluations of the same data at the same size by the same protocol, and with nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gan_core.data.images import ImageSet
from gan_core.networks.drawing import draw, standing_statistics
from gan_core.plan import Plan
from gan_core.quality import fid
from gan_core.quality.distances import frechet_distance, kernel_distance, moments

SAMPLES = 1_024  # images on each side; all of the real ones, if there are fewer
FEATURES = 128
PATCH, PATCHES, DIRECTIONS = 7, 32, 128  # pixels a side, patches an image, random projections
NEIGHBOURS = 5
COARSEST = 16  # pixels a side of a pyramid's last level
PROTOCOL = (
    f"random-conv-1, {SAMPLES:,} samples"  # another one when any of this changes: figures are then not comparable
)


@dataclass(frozen=True, slots=True)
class Scores:
    """How good samples are."""

    frechet: float
    kid: float
    kid_error: float
    wasserstein: float
    diversity: float
    coverage: float
    fid: float | None = None


class Evaluator:
    """The real images' side of every figure, computed once. About a second for 64x64 on two cores."""

    def __init__(self, images: ImageSet) -> None:
        chosen = np.random.default_rng(0).permutation(len(images))[:SAMPLES]
        real = images.batch(np.sort(chosen))
        self._net = _random_net(real.shape[1])
        raw = self._net_features(real)
        self._centre, self._scale = raw.mean(0), float(raw.std(0).mean()) or 1.0
        features = (raw - self._centre) / self._scale
        self._moments = moments(features)
        self._plain = features
        self._features, self._reach = _near(features)
        self._spacing = float(self._reach[:, 0].median())
        self._slices = list(_slices(real))
        self.fid = fid.fid_for(images)

    def scores(self, samples: Tensor) -> Scores:
        """All but FID, of samples (N, C, S, S) in [-1, 1]."""
        features = (self._net_features(samples) - self._centre) / self._scale
        points, near = _near(features)
        levels = zip(self._slices, _slices(samples), strict=True)
        kid, kid_error = kernel_distance(self._plain, features)
        return Scores(
            frechet=frechet_distance(*self._moments, *moments(features)),
            kid=kid,
            kid_error=kid_error,
            wasserstein=1000 * float(np.mean([_distance_of_sorted(ours, theirs) for ours, theirs in levels])),
            diversity=float(near[:, 0].median()) / self._spacing if self._spacing else 1.0,
            coverage=float((torch.cdist(self._features, points).min(1).values < self._reach[:, -1]).float().mean()),
        )

    @torch.no_grad()
    def _net_features(self, images: Tensor) -> np.ndarray:
        return torch.cat([self._net(batch) for batch in images.split(256)]).double().numpy()


def scores_of(plan: Plan, average: Tensor, evaluator: Evaluator) -> Scores:
    """Of the averaged generator's images, from noise that is the same at every call."""
    seed = torch.Generator().manual_seed(12_345)
    noise = torch.randn(SAMPLES, plan.latent_dim, 1, 1, generator=seed)
    found = evaluator.scores(draw(plan, average, noise, batch=64))
    if evaluator.fid is None:
        return found
    more = torch.randn(fid.SAMPLES, plan.latent_dim, 1, 1, generator=seed).split(fid.AT_ONCE)
    statistics = standing_statistics(plan, average)
    return replace(found, fid=evaluator.fid.of(draw(plan, average, part, statistics) for part in more))


def _random_net(channels: int) -> nn.Sequential:
    """Images (N, C, S, S) → features (N, FEATURES). The same weights at every call; the program's random state stays."""
    with torch.device("meta"):  # without numbers yet: the usual ones would move the program's random state
        net = nn.Sequential(
            nn.Conv2d(channels, 32, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(1024, FEATURES, bias=False),
        )
    net = net.to_empty(device="cpu").to(memory_format=torch.channels_last)
    seed = torch.Generator().manual_seed(0)
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, generator=seed)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net.eval().requires_grad_(False)


def _near(features: np.ndarray) -> tuple[Tensor, Tensor]:
    """Points (N, FEATURES), and each one's distances to its NEIGHBOURS nearest others (N, at most NEIGHBOURS), sorted."""
    points = torch.from_numpy(features).float()
    distances = torch.cdist(points, points).fill_diagonal_(torch.inf)
    return points, distances.topk(max(1, min(NEIGHBOURS, len(points) - 1)), largest=False).values


def _slices(images: Tensor) -> Iterator[Tensor]:
    """For each level of the pyramid, the finest first: patches' projections (patches, DIRECTIONS), each column sorted."""
    for size, level in _pyramid(images):
        places = torch.Generator().manual_seed(size)
        count = len(level)
        top, left = (torch.randint(size - PATCH + 1, (2, count, PATCHES, 1, 1), generator=places)).unbind()
        inside = torch.arange(PATCH)
        which = torch.arange(count).view(-1, 1, 1, 1)
        patches = level.permute(0, 2, 3, 1)[which, top + inside.view(-1, 1), left + inside].flatten(0, 1)
        patches = (patches - patches.mean((0, 1, 2))) / patches.std((0, 1, 2)).clamp_min(1e-8)  # each channel alone
        directions = torch.randn(PATCH * PATCH * level.shape[1], DIRECTIONS, generator=places)
        yield (patches.flatten(1) @ (directions / directions.norm(dim=0))).sort(0).values


def _pyramid(images: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(pixels a side, detail of this scale), and the blurred rest last."""
    size = images.shape[-1]
    while size > COARSEST:
        coarse = F.avg_pool2d(images, 2)
        yield size, images - F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)
        images, size = coarse, size // 2
    yield size, images


def _distance_of_sorted(ours: Tensor, theirs: Tensor) -> float:
    """Mean distance of two sorted samples (N, DIRECTIONS) and (M, DIRECTIONS), the longer one thinned out."""
    count = min(len(ours), len(theirs))
    ours, theirs = (side[torch.linspace(0, len(side) - 1, count).round().long()] for side in (ours, theirs))
    return float((ours - theirs).abs().mean())
