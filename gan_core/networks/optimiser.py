"""The plan's Adam, for machines that walk and for the coordinator's one step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gan_core.plan import Plan


def adam(parameters: list[nn.Parameter] | list[Tensor], learning_rate: float, plan: Plan) -> torch.optim.Adam:
    """The plan's Adam. Fused: one pass over the numbers instead of a dozen."""
    on_gpu = (
        parameters[0].device.type == "cuda"
    )  # there its step is counted on the device, so that a graph can record it
    betas = plan.beta1, plan.beta2
    return torch.optim.Adam(parameters, lr=learning_rate, betas=betas, fused=True, capturable=on_gpu)


@torch.no_grad()
def start_afresh(optimiser: torch.optim.Adam) -> None:
    """Forget all steps, in place: as good as new, and in the memory that a graph has recorded."""
    for state in optimiser.state.values():
        for tensor in state.values():
            tensor.zero_()


def warm_up(plan: Plan) -> None:
    """Make PyTorch load its optimisers now: the first one costs a second, which would look like a slow unit."""
    adam([torch.zeros(1)], plan.learning_rate_g, plan)


def step(optimiser: torch.optim.Optimizer, parameters: Sequence[Tensor], gradient: Sequence[Tensor]) -> None:
    """One optimiser step with this gradient, whatever order its numbers lie in."""
    for parameter, value in zip(parameters, gradient, strict=True):
        # The fused Adam goes through both as they lie in memory: some backends return kernels' gradients in another order.
        laid_out = value if value.stride() == parameter.stride() else torch.empty_like(parameter).copy_(value)
        parameter.grad = laid_out
    optimiser.step()
