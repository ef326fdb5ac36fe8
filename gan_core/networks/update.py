"""The coordinator's state, and its step: weights and one aggregated contribution give the next weights."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gan_core.layout import PARTS, Vectors
from gan_core.networks.gradients import adam, step
from gan_core.networks.models import Networks, initial_weights
from gan_core.plan import Plan
from gan_core.policies.aggregation import RULES


@dataclass(slots=True)
class State:
    """Everything an unbroken run knows after an iteration. All float32, on the CPU."""

    iteration: int  # of the weights: 0 before the first update
    images: int  # seen so far
    position: int  # handed out so far: where the sampler continues
    weights: Vectors
    average: Vectors  # moving average of G and of the statistics; D's part is empty
    moments: dict[str, Tensor]  # Adam's running means ("generator.mean", ...), for contribution kind `gradient`
    steps: int  # Adam steps taken


def initial_state(plan: Plan) -> State:
    """Iteration 0."""
    weights = initial_weights(plan)
    moments = (
        {
            f"{part}.{moment}": torch.zeros_like(weights.part(part))
            for part in ("generator", "discriminator")
            for moment in ("mean", "square")
        }
        if plan.contribution == "gradient"
        else {}
    )
    average = Vectors(weights.generator.clone(), torch.zeros(0), weights.statistics.clone())
    return State(0, 0, 0, weights, average, moments, 0)


class Aggregate:
    """One iteration's contributions on their way to becoming one. Fed in unit order."""

    def __init__(self, plan: Plan) -> None:
        # One rule for each part: their scales differ, and a bound on lengths must not be set by the larger network.
        self._rules = {part: RULES[plan.aggregation]() for part in PARTS}
        self.images = 0

    def add(self, contribution: Vectors, images: int) -> None:
        self.images += images
        for part, rule in self._rules.items():
            rule.add(contribution.part(part), images)

    def result(self) -> Vectors:
        return Vectors(*(self._rules[part].result() for part in PARTS))


def advance(plan: Plan, state: State, direction: Vectors, images: int, position: int) -> None:
    """Take one iteration's step, in place.

    Args:
        direction: the aggregated contribution; its statistics replace the old ones
        images: that the contributions were computed from
        position: of the sampler after this iteration's units
    """
    if plan.contribution == "gradient":
        _adam_step(plan, state, direction)
    else:
        state.weights.generator += direction.generator
        state.weights.discriminator += direction.discriminator
    state.weights.statistics.copy_(direction.statistics)
    keep = 0.5 ** (images / plan.ema_half_life) if plan.ema_half_life else 0.0
    state.average.generator.lerp_(state.weights.generator, 1 - keep)
    state.average.statistics.lerp_(state.weights.statistics, 1 - keep)
    state.iteration += 1
    state.images += images
    state.position = position


def _adam_step(plan: Plan, state: State, gradient: Vectors) -> None:
    for part, learning_rate in (("generator", plan.learning_rate_g), ("discriminator", plan.learning_rate_d)):
        weights = state.weights.part(part)
        optimiser = adam([weights], learning_rate, plan)
        optimiser.state[weights] = {
            "step": torch.tensor(float(state.steps)),
            "exp_avg": state.moments[f"{part}.mean"],
            "exp_avg_sq": state.moments[f"{part}.square"],
        }
        step(optimiser, [weights], [gradient.part(part)])
        weights.grad = None
    state.steps += 1


def tensors_of(state: State) -> dict[str, Tensor]:
    """Everything in a state that is a tensor, by name: what a checkpoint holds."""
    named = {f"weights.{part}": state.weights.part(part) for part in PARTS}
    named |= {f"average.{part}": state.average.part(part) for part in ("generator", "statistics")}
    return named | {f"moments.{name}": tensor for name, tensor in state.moments.items()}


@torch.no_grad()
def draw(plan: Plan, average: Vectors, noise: Tensor, batch: int = 256) -> Tensor:
    """Images (N, C, S, S) in [-1, 1] that the averaged generator makes of this noise (N, latent, 1, 1)."""
    networks = Networks(plan)
    whole = networks.read()
    networks.load(Vectors(average.generator, whole.discriminator, average.statistics))
    networks.generator.eval()
    return torch.cat([networks.generator(piece) for piece in noise.split(batch)])


def fixed_noise(plan: Plan, count: int = 64) -> Tensor:
    """The same noise (count, latent, 1, 1) at every call, so that pictures of one training can be compared."""
    return torch.randn(count, plan.latent_dim, 1, 1, generator=torch.Generator().manual_seed(plan.seed + 1))


def aggregate_all(plan: Plan, contributions: Iterable[tuple[Vectors, int]]) -> tuple[Vectors, int]:
    """The aggregated contribution of these (contribution, images) in their order, and its images."""
    total = Aggregate(plan)
    for vectors, images in contributions:
        total.add(vectors, images)
    return total.result(), total.images
