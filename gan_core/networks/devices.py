"""Finds out this machine's devices and hardware."""

import os
import platform

import psutil
import torch


def hardware() -> dict[str, object]:
    """What this machine is, as far as PyTorch and psutil know. Nothing personal."""
    gpus = (
        [
            {"name": torch.cuda.get_device_name(i), "memory_mb": torch.cuda.get_device_properties(i).total_memory >> 20}
            for i in range(torch.cuda.device_count())
        ]
        if torch.cuda.is_available()
        else []
    )
    return {
        "system": platform.system(),
        "cores": os.cpu_count(),
        "memory_mb": psutil.virtual_memory().total >> 20,
        "torch": torch.__version__,
        "gpus": gpus,
    }


def device_names(devices: str) -> list[str]:
    """The devices that a setting names, such as `cuda:0,cuda:1`; the best one here, if it names none."""
    return [name.strip() for name in devices.split(",") if name.strip()] or [best_device()]


def best_device() -> str:
    """The fastest device here: a CUDA GPU, Apple's, or the CPU."""
    if torch.cuda.is_available():
        return "cuda:0"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"
