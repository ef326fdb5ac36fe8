"""What each network minimises. Logits in, one number out; means over the batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch.nn.functional as F
from torch import Tensor

from gan_core.plan import LossName


@dataclass(frozen=True, slots=True)
class Loss:
    """Two pure functions of the discriminator's logits, each of shape (N,)."""

    discriminator: Callable[[Tensor, Tensor], Tensor]  # (real logits, fake logits) → scalar
    generator: Callable[[Tensor], Tensor]  # (fake logits) → scalar


def bce_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    """-log σ(real) - log(1 - σ(fake)). Source: Goodfellow et al. 2014 (arXiv:1406.2661), eq. 1."""
    return F.softplus(-real).mean() + F.softplus(fake).mean()


def bce_generator(fake: Tensor) -> Tensor:
    """-log σ(fake), the non-saturating form. Source: Goodfellow et al. 2014 (arXiv:1406.2661), section 3."""
    return F.softplus(-fake).mean()


def hinge_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    """max(0, 1 - real) + max(0, 1 + fake). Source: Miyato et al. 2018 (arXiv:1802.05957), eq. 16."""
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


def hinge_generator(fake: Tensor) -> Tensor:
    """-fake. Source: Miyato et al. 2018 (arXiv:1802.05957), eq. 17."""
    return -fake.mean()


LOSSES: Mapping[LossName, Loss] = MappingProxyType(
    {
        "bce": Loss(bce_discriminator, bce_generator),
        "hinge": Loss(hinge_discriminator, hinge_generator),
    }
)
