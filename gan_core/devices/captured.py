"""A step recorded as a CUDA graph: some 200 kernels are started at once instead of one by one, which takes a GPU longer than computing.

On other devices the same step runs as it is.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gan_core.devices.hardware import in_words, is_out_of_memory

log = logging.getLogger("classgan.devices")

WARM_UP = 3  # runs before recording, in which kernels are chosen and optimisers make their memory
AHEAD = 8  # steps that may be started before the first of them is done: enough to keep the GPU busy

Step = Callable[..., None]
Recorded = tuple[torch.cuda.CUDAGraph, list[Tensor]]

_recording = threading.Lock()  # PyTorch records one graph at a time in a process


def is_recorded(device: torch.device) -> bool:
    """Whether steps are recorded there."""
    return device.type == "cuda"


class Captured:
    """Runs a step over tensors on a device; on CUDA as a graph, recorded once for each size of batch.

    Args:
        step: computes with the given tensors and what it holds itself; must do the same at each call, without asking the
            device for a number.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self._step, self._device = step, device
        self._graphs: dict[int, Recorded | None] = {}  # by batch size; None: this step can't be recorded
        # One memory for all: they run one after the other, and what one has left there the next doesn't read.
        self._pool = torch.cuda.graph_pool_handle() if is_recorded(device) else None
        self._started: deque[torch.cuda.Event | torch.mps.Event | torch.xpu.Event] = deque()

    def record(self, tensors: Sequence[Tensor]) -> None:
        """Record the step for batches of this size, with these tensors, unless that was done. Runs it, too.

        Raises:
            RuntimeError: by the device, which has too little memory or doesn't compute at all.
        """
        size = len(tensors[0])
        if is_recorded(self._device) and size not in self._graphs:
            with _recording, torch.cuda.device(self._device):  # streams are those of the current GPU
                self._graphs[size] = self._recorded(list(tensors))

    def _recorded(self, held: list[Tensor]) -> Recorded | None:
        here, aside, graph = (
            torch.cuda.current_stream(self._device),
            torch.cuda.Stream(self._device),
            torch.cuda.CUDAGraph(),
        )
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._step(*held)
        here.wait_stream(aside)
        try:
            # On a stream of this GPU: PyTorch's own belongs to the first one that it has recorded on, and would record nothing here.
            # Another thread may compute meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, stream=aside, capture_error_mode="thread_local"):
                self._step(*held)
        except RuntimeError as fault:
            if is_out_of_memory(fault):
                raise
            log.warning("Steps can't be recorded on %s (%s), so they take longer.", self._device, in_words(fault))
            return None
        finally:
            torch.cuda.set_stream(here)  # which PyTorch forgets where recording fails
        return graph, held

    def __call__(self, tensors: Sequence[Tensor]) -> None:
        """Run it with these tensors."""
        if not is_recorded(self._device):
            self._step(*tensors)
            self._keep_pace()
            return
        with torch.cuda.device(self._device):
            if (recorded := self._graphs[len(tensors[0])]) is None:
                self._step(*tensors)
            else:
                graph, held = recorded
                for mine, given in zip(held, tensors, strict=True):
                    mine.copy_(given, non_blocking=True)
                graph.replay()
            self._keep_pace()

    def _keep_pace(self) -> None:
        """Wait for an earlier step: who is told of steps that are only queued would take a GPU that hangs for a busy one."""
        if is_recorded(self._device):
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self._device))
        elif self._device.type in ("mps", "xpu"):
            event = getattr(torch, self._device.type).Event()
            event.record()
        else:
            return
        self._started.append(event)
        if len(self._started) > AHEAD:
            self._started.popleft().synchronize()
