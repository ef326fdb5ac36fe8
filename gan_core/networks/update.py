"""The coordinator's state, and its step: weights and one aggregated contribution give the next weights."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gan_core.layout import PARTS, Part, Vectors
from gan_core.networks.models import initial_weights
from gan_core.networks.optimiser import adam, step
from gan_core.plan import Plan
from gan_core.policies.aggregation import RULES


@dataclass(slots=True)
class State:
    """Everything an unbroken run knows after an iteration. All float32, on the CPU."""

    iteration: int  # of the weights: 0 before the first update
    images: int  # seen so far
    position: int  # handed out so far: where the sampler continues
    weights: Vectors
    average: Tensor  # moving average of G
    moments: dict[str, Tensor]  # Adam's running means ("generator.mean", ...), for contribution kind `gradient`
    steps: int  # Adam steps taken


def initial_state(plan: Plan) -> State:
    """Iteration 0."""
    weights = initial_weights(plan)
    moments = (
        {f"{part}.{moment}": torch.zeros_like(weights.part(part)) for part in PARTS for moment in ("mean", "square")}
        if plan.contribution == "gradient"
        else {}
    )
    return State(0, 0, 0, weights, weights.generator.clone(), moments, 0)


class Aggregate:
    """One iteration's contributions on their way to becoming one. Fed in unit order."""

    def __init__(self, plan: Plan) -> None:
        self._rule = RULES[plan.aggregation]()
        self._plan = plan
        self._squares = 0
        self.images = 0

    def add(self, contribution: Vectors, images: int) -> None:
        self.images += images
        self._squares += images**2
        self._rule.add(contribution, images)

    def result(self) -> Vectors:
        return self._rule.result()

    @property
    def walked(self) -> float:
        """Images along the way from the old weights to the new ones: batch_size for each update that one machine made.

        However many machines walk at the same time, their mean goes no further than one of them. It counts walks by
        their images, as the mean does.
        """
        if self._plan.contribution == "gradient":
            return self._plan.batch_size
        return self._squares / self.images


def advance(plan: Plan, state: State, aggregate: Aggregate, position: int) -> None:
    """Take one iteration's step, in place.

    Args:
        aggregate: of the iteration's contributions; one at least
        position: of the sampler after this iteration's units
    """
    direction = aggregate.result()
    if plan.contribution == "gradient":
        _adam_step(plan, state, direction)
    else:
        state.weights.generator += direction.generator
        state.weights.discriminator += direction.discriminator
    keep = 0.5 ** (aggregate.walked / plan.ema_half_life) if plan.ema_half_life else 0.0
    state.average.lerp_(state.weights.generator, 1 - keep)
    state.iteration += 1
    state.images += aggregate.images
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


def step_lengths(plan: Plan, state: State) -> dict[Part, float]:
    """How long (Euclidean) a contribution is that moves every weight by an ordinary step.

    For local steps: one Adam step at its full rate. For a gradient: the root of Adam's mean square, 0 before its first step
    (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1).
    """
    if plan.contribution == "local_steps":
        rates: dict[Part, float] = {"generator": plan.learning_rate_g, "discriminator": plan.learning_rate_d}
        return {part: rate * math.sqrt(len(state.weights.part(part))) for part, rate in rates.items()}
    seen = 1 - plan.beta2**state.steps  # share of the mean that is not its start at 0
    return {part: math.sqrt(float(state.moments[f"{part}.square"].sum()) / seen) if seen else 0.0 for part in PARTS}


def tensors_of(state: State) -> dict[str, Tensor]:
    """Everything in a state that is a tensor, by name: what a checkpoint holds."""
    named = {f"weights.{part}": state.weights.part(part) for part in PARTS}
    named["average.generator"] = state.average
    return named | {f"moments.{name}": tensor for name, tensor in state.moments.items()}


def aggregate_all(plan: Plan, contributions: Iterable[tuple[Vectors, int]]) -> Aggregate:
    """The aggregate of these (contribution, images) in their order."""
    total = Aggregate(plan)
    for vectors, images in contributions:
        total.add(vectors, images)
    return total
