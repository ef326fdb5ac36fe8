"""How precisely a device computes a plan: bfloat16 where that is much faster, with float32 weights, norms and losses."""

from contextlib import AbstractContextManager, nullcontext

import torch

from gan_core.plan import Plan

FAST_BFLOAT16 = (8, 0)  # compute capability from which NVIDIA's GPUs have it: Ampere


def computing(plan: Plan, device: torch.device) -> AbstractContextManager[object]:
    """While this holds, convolutions are computed as the plan's `precision` says."""
    if plan.precision == "mixed" and has_bfloat16(device):
        # Without the cache of cast weights: they change at each step, and a recorded step must cast them anew.
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return nullcontext()


def has_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is much faster there than float32."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= FAST_BFLOAT16


def set_float32(plan: Plan, device: torch.device) -> None:
    """What float32 means on NVIDIA's GPUs from now on: TF32 (10 bits of mantissa) for mixed precision, else what it says."""
    if device.type == "cuda":
        how = "tf32" if plan.precision == "mixed" else "ieee"
        torch.backends.cudnn.conv.fp32_precision = how  # ty: ignore[missing-attribute]
        torch.backends.cuda.matmul.fp32_precision = how
        torch.backends.cudnn.benchmark = True  # shapes never change: the fastest kernel for each is worth looking for
