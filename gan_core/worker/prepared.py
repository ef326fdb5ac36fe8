"""A training as a student's machine holds it: plan, images, networks, and the weights it computes from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from gan_core.data.images import ImageSet
from gan_core.layout import Layout, Vectors
from gan_core.networks.models import Networks
from gan_core.plan import Plan
from gan_core.policies.announcements import announced, changed


@dataclass(slots=True)
class Prepared:
    """All that doesn't change from lease to lease, and the last weights."""

    name: str
    plan: Plan
    layout: Layout
    images: ImageSet
    networks: tuple[Networks, ...]  # one a device
    version: int  # of the plan
    step_mb: int  # memory that one step takes; 0 if nobody has looked
    iteration: int = -1  # of the weights
    weights: Vectors = field(default_factory=lambda: Vectors(torch.zeros(0), torch.zeros(0)))

    def after(self, iteration: int) -> Callable[[bytes], bytes] | None:
        """What makes an iteration's weights of a change; None without those of the iteration before."""
        has_last = 0 <= self.iteration == iteration - 1
        return partial(changed, self.plan, self.layout, self.weights) if has_last else None

    def take(self, iteration: int, payload: bytes) -> None:
        """From now on compute from these weights."""
        self.weights, self.iteration = announced(self.plan, self.layout, payload), iteration
