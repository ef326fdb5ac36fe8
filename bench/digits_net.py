"""Makes the net whose features the digit distance is measured in: `python -m bench.digits_net`.

It is trained on digits that no GAN here sees: the 1,797 of the UCI repository (Alpaydin and Kaynak 1998,
doi:10.24432/C50P49), 8 x 8 pixels by 43 writers, which come with scikit-learn. Each is enlarged, turned, stretched, moved,
and made thinner or thicker at random, so that the features hold for the strokes of MNIST too. Computed in 64 bits: of
the differences between two machines' rounding, nothing is left in the 16 bits that are stored.
"""

import importlib.util
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from gan_core.files import write_whole
from gan_core.quality.digits import NET, DigitsNet

STEPS = 400  # of 64 digits each: 14 passes
RATE = 2e-3  # falls to 0


def uci_digits() -> tuple[Tensor, Tensor]:
    """(1797, 1, 8, 8) in [0, 1], and their labels; found without importing scikit-learn."""
    package = importlib.util.find_spec("sklearn")
    path = Path(package.origin if package and package.origin else "").parent / "datasets" / "data" / "digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float64))
    return rows[:, :64].view(-1, 1, 8, 8) / 16, rows[:, 64].long()


def varied(digits: Tensor, seed: torch.Generator) -> Tensor:
    """(N, 1, 8, 8) in [0, 1] → (N, 1, 32, 32) in [-1, 1], written by other hands."""

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(len(digits), generator=seed, dtype=torch.float64)

    large = F.interpolate(digits, size=20, mode="bicubic", align_corners=False).clamp(0, 1)  # MNIST's size
    turn, height, width, slant = between(-0.25, 0.25), between(0.85, 1.25), between(0.7, 1.4), between(-0.3, 0.3)
    across = torch.stack([turn.cos() / width, (slant - turn.sin()) / height, between(-0.1, 0.1)], 1)
    down = torch.stack([turn.sin() / width, turn.cos() / height, between(-0.1, 0.1)], 1)
    grid = F.affine_grid(torch.stack([across, down], 1), [len(digits), 1, 32, 32], align_corners=False)
    moved = F.grid_sample(F.pad(large, (6, 6, 6, 6)), grid, align_corners=False)
    edge, where = between(2, 8).view(-1, 1, 1, 1), between(0.3, 0.8).view(-1, 1, 1, 1)  # a high edge is a thin stroke
    return ((moved - where) * edge + 0.5).clamp(0, 1) * 2 - 1


def trained() -> dict[str, Tensor]:
    """The net's weights, in 16 bits."""
    digits, labels = uci_digits()
    seed = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = DigitsNet().double()
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        batch = torch.randint(len(digits), (64,), generator=seed)
        loss = F.cross_entropy(net(varied(digits[batch], seed)), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        falling.step()
    return {name: tensor.half() for name, tensor in net.state_dict().items()}


if __name__ == "__main__":
    write_whole(NET, safetensors.torch.save(trained()))
    print(f"{NET}: {NET.stat().st_size:,} bytes")
