"""A step recorded as a CUDA graph: some 200 kernels are started at once instead of one by one, which takes a GPU longer than computing.

On other devices the same step runs as it is.
"""

from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM_UP = 3  # runs before recording, in which kernels are chosen and optimisers make their memory
AHEAD = 8  # steps that may be started before the first of them is done: enough to keep the GPU busy

Step = Callable[..., None]


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
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        self._started: deque[torch.cuda.Event] = deque()

    def record(self, tensors: Sequence[Tensor]) -> None:
        """Record the step for batches of this size, with these tensors, unless that was done. Runs it, too."""
        if not is_recorded(self._device) or len(tensors[0]) in self._graphs:
            return
        held, graph = list(tensors), torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):  # streams are those of the current one, which is the first GPU elsewhere
            aside = torch.cuda.Stream(self._device)
            aside.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP):
                    self._step(*held)
            torch.cuda.current_stream(self._device).wait_stream(aside)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # another thread may use another GPU
                self._step(*held)
        self._graphs[len(held[0])] = graph, held

    def __call__(self, tensors: Sequence[Tensor]) -> None:
        """Run it with these tensors."""
        if not is_recorded(self._device):
            self._step(*tensors)
            return
        graph, held = self._graphs[len(tensors[0])]
        with torch.cuda.device(self._device):
            for mine, given in zip(held, tensors, strict=True):
                mine.copy_(given, non_blocking=True)
            graph.replay()
            self._keep_pace()

    def _keep_pace(self) -> None:
        """Wait for an earlier step: who is told of steps that are only queued would take a GPU that hangs for a busy one."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        self._started.append(event)
        if len(self._started) > AHEAD:
            self._started.popleft().synchronize()
