"""How much memory one step of a plan takes: found with small batches, before any machine is asked for all of it."""

import gc
import weakref
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from gan_core.networks.gradients import Mean, Walk
from gan_core.networks.inputs import Batch, blank, largest_batch
from gan_core.networks.models import Networks, layout_of
from gan_core.plan import Plan

FEW, MORE = 4, 8  # images of the batches that are computed here


class _Alive(TorchDispatchMode):
    """While it holds, notes how many bytes are alive whenever a tensor is made: those that were made here and not freed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.course: list[int] = []
        self._now = 0
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
            self.course.append(self._now)
            weakref.finalize(storage, self._freed, name, storage.nbytes())

    def _freed(self, name: int, size: int) -> None:
        self._known.discard(name)
        self._now -= size


@cache
def step_bytes(plan: Plan) -> int:
    """What the tensors of one step take, in bytes, on whatever device: weights, gradients, what Adam remembers, and what is kept
    for going backward; with `mixed` precision as on a device that computes in bfloat16.

    Found on the CPU, in about a second for a model of 64x64 pixels. At each moment of a step, what is alive is a constant and
    a share for each image. So two small batches say of each moment what it would be with the plan's, and the most of them
    counts. PyTorch itself and its kernels' scratch memory come on top: some hundred MB.
    """
    batch = largest_batch(plan)
    if batch <= MORE:
        return max(_course(plan, batch))
    few, more = _course(plan, FEW), _course(plan, MORE)
    if len(few) != len(more):  # never seen; so much it takes in any case
        return max(more)
    return max(b + (b - a) * (batch - MORE) // (MORE - FEW) for a, b in zip(few, more, strict=True))


def _course(plan: Plan, batch: int) -> list[int]:
    """Bytes alive whenever a tensor of two steps is made: the second one begins with the first one's gradients."""
    layout_of(plan)  # which makes networks without memory, once: they don't count
    collects = gc.isenabled()
    gc.disable()  # what only its pass would free stays, in both batches
    try:
        with _Alive() as alive:
            networks = Networks(plan)
            step = (Mean if plan.contribution == "gradient" else Walk)(plan, networks)
            for _ in range(2):
                with torch.autocast("cpu", torch.bfloat16, enabled=plan.precision == "mixed", cache_enabled=False):
                    step.take(Batch(*blank(plan, batch, torch.device("cpu"))))
        return alive.course
    finally:
        if collects:
            gc.enable()
