"""What this machine has to compute with, and how each kind of device is treated."""

import gc
import os
import platform
from contextlib import suppress
from math import inf
from pathlib import Path
from textwrap import shorten

import psutil
import torch

CPU = "cpu"
KINDS = ("cpu", "cuda", "mps", "xpu")  # of devices that come without another package
TOGETHER = "+"  # between the devices that one shift computes on
OLD_GPU = (  # the last builds with kernels for Maxwell, Pascal and Volta: pytorch issue 190385
    "PyTorch has no kernels for this GPU in this build: pip install 'torch==2.14.*' --index-url "
    "https://download.pytorch.org/whl/cu126 has them for GTX 900 and 1000, Tesla P and V; for a card that is newer than "
    "this PyTorch, pip install -U torch"
)
# What a container may use, in bytes: of Linux's control groups, in their second and first version.
CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
TOO_SMALL = "its memory is too small for this training"
WORDS = 300  # characters of an error that are shown: PyTorch lists all its backends in one
# What is said when memory is short, by CUDA, cuBLAS, Linux and Windows.
FULL = ("out of memory", "alloc_failed", "can't allocate memory", "not enough memory")
# From, below: batch norm's gradients may be wrong there (pytorch issues 175189, 192303).
WRONG_ON_MPS = ((2, 9), (2, 13))


def hardware(device: str) -> dict[str, object]:
    """What this machine is, as far as PyTorch and psutil know. Nothing personal.

    Args:
        device: that is computed on: GPUs are asked only if it is one, since a driver in a bad state shall not be touched for nothing.
    """
    gpus: list[dict[str, object]] = []
    # A driver may list more than it can tell of: the self-test finds out.
    with suppress(RuntimeError, AssertionError):
        if device.startswith("cuda") and torch.cuda.is_available():
            for number in range(torch.cuda.device_count()):
                told = torch.cuda.get_device_properties(number)
                gpus.append({"name": told.name, "memory_mb": told.total_memory >> 20})
    has_room = {} if device == CPU or (most := room(device)) == inf else {"room_mb": int(most) >> 20}
    return has_room | {
        "system": platform.system(),
        "cores": os.cpu_count(),
        "memory_mb": main_memory() >> 20,
        "torch": torch.__version__,
        "gpus": gpus,
    }


def choices(wanted: str) -> list[str]:
    """What a shift computes on, the best first, and the CPU at last: what comes later is for when the earlier ones fail.

    Args:
        wanted: a setting such as `cuda:1`, or `cuda:0+cuda:1` for two devices of one shift. "": every device here.
    """
    asked = [name.strip() for name in wanted.split(",") if name.strip()]
    # Of several together each one by itself, too: one of them may be in order.
    asked = [TOGETHER.join(filter(None, name.split(TOGETHER))) for name in asked]
    found = [one for name in asked for one in (name, *name.split(TOGETHER)) if one] or [
        *(f"cuda:{i}" for i in range(torch.cuda.device_count())),
        *_apple(),
    ]
    return list(dict.fromkeys([*found, CPU]))


def is_device(name: str) -> bool:
    """Whether PyTorch knows such a device, or several with `+`: whether this machine has it is another question."""
    with suppress(RuntimeError):
        return all(torch.device(one).type in KINDS for one in name.split(TOGETHER))
    return False


def _apple() -> list[str]:
    return ["mps"] if torch.backends.mps.is_available() else []


def main_memory() -> int:
    """Bytes of this machine's own memory, or of what a container may use of it."""
    limits = [psutil.virtual_memory().total]
    for file in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(file.read_text(encoding="ascii")))
    return min(limits)


def room(device: str) -> float:
    """Bytes that a training may take on a device, or on each of several; infinite where nobody can say.

    Of a machine's own memory it is half: the system, a browser and PyTorch itself want theirs. The class counts the same way
    (`classgan.room_mb`).
    """
    with suppress(RuntimeError, AssertionError):  # a device that isn't there: the self-test finds out
        if TOGETHER in device:
            return min(room(one) for one in device.split(TOGETHER))
        if device.startswith("cuda"):
            return torch.cuda.get_device_properties(device).total_memory
        if device == "mps":
            return torch.mps.recommended_max_memory()
        if device.startswith("xpu"):
            return torch.xpu.get_device_properties(device).total_memory
        if device == CPU:
            return main_memory() // 2
    return inf


def memory_format(device: torch.device) -> torch.memory_format:
    """How images lie in a device's memory. channels_last is what NVIDIA's tensor cores compute in, and saves a CPU some of its
    reordering; Apple's MPS has computed wrong gradients with it.
    """
    return torch.contiguous_format if device.type == "mps" else torch.channels_last


def known_fault(device: str) -> str:
    """Why this device isn't even tried with this PyTorch, in words; "" if nothing is known."""
    if not is_device(device):
        return f"PyTorch knows no device of this name: {', '.join(KINDS[1:])} and cpu are some"
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    first, mended = WRONG_ON_MPS
    if device.startswith("mps") and first <= version < mended:
        return f"PyTorch {torch.__version__} computes wrong gradients on it: pip install -U torch"
    return ""


def in_words(fault: BaseException) -> str:
    """What a device's error means, without the pages that CUDA adds."""
    text = str(fault).strip()
    if "no kernel image" in text:
        return OLD_GPU
    if is_out_of_memory(fault):
        return TOO_SMALL
    return (
        shorten(text.partition("\n")[0].partition(". ")[0], WORDS, placeholder=" ...").rstrip(".")
        or type(fault).__name__
    )


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether a device, or this machine, had too little memory: each kind says so in its own way."""
    said = str(fault).lower()
    return isinstance(fault, MemoryError | torch.OutOfMemoryError) or (
        isinstance(fault, RuntimeError) and any(words in said for words in FULL)
    )


def forget_memory(device: str) -> None:
    """Give back what PyTorch keeps for later. Call it when nothing refers to the networks any more, no fault's traceback either."""
    if device == CPU:
        return
    gc.collect()  # a recorded step and what it computes with refer to each other
    with suppress(RuntimeError):  # a device that is broken keeps it
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
        elif device.startswith("mps"):
            torch.mps.empty_cache()
        elif device.startswith("xpu"):
            torch.xpu.empty_cache()


def is_broken(device: str) -> bool:
    """Whether a device computes nothing any more in this process, as after a driver's reset."""
    try:
        return any(float(torch.ones(2, device=name).sum()) != 2 for name in device.split(TOGETHER))
    except RuntimeError:
        return True
