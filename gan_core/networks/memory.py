"""How much memory one step of a plan takes: found with small batches, before any machine is asked for all of it."""

import weakref
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from gan_core.networks.gradients import Mean, Walk
from gan_core.networks.inputs import Batch, blank, largest_batch
from gan_core.networks.models import Networks
from gan_core.plan import Plan

FEW, MORE = 4, 8  # images of the batches that are computed here


class _Alive(TorchDispatchMode):
    """While it holds, counts the bytes of the tensors that were made and not freed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self._now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._see, made)
        return made

    def _see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()  # which views share
        if (name := id(storage)) not in self._known:
            self._known.add(name)
            self._now += storage.nbytes()
            self.most = max(self.most, self._now)
            weakref.finalize(storage, self._freed, name, storage.nbytes())

    def _freed(self, name: int, size: int) -> None:
        self._known.discard(name)
        self._now -= size


@cache
def step_bytes(plan: Plan) -> int:
    """What one step of this plan takes at least, in bytes, on whatever device: weights, gradients, what Adam remembers, and what
    is kept for going backward; with `mixed` precision as on a device that computes in bfloat16.

    Found on the CPU, in about a second for a model of 64x64 pixels. At each moment of a step, what is alive is a constant and
    a share for each image; the most of all moments is convex in the batch, so a line through two small batches lies below
    it. PyTorch itself and its kernels' scratch memory come on top: some hundred MB.
    """
    batch = largest_batch(plan)
    if batch <= MORE:
        return _most(plan, batch)
    few, more = _most(plan, FEW), _most(plan, MORE)
    return more + (more - few) * (batch - MORE) // (MORE - FEW)


def _most(plan: Plan, batch: int) -> int:
    with _Alive() as alive:
        networks = Networks(plan)
        step = (Mean if plan.contribution == "gradient" else Walk)(plan, networks)
        for _ in range(2):  # from the second one on, the last one's gradients and Adam's memory are there
            with torch.autocast("cpu", torch.bfloat16, enabled=plan.precision == "mixed", cache_enabled=False):
                step.take(Batch(*blank(plan, batch, torch.device("cpu"))))
    return alive.most
