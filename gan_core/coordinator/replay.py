"""A training computed again, alone, from what the ledger says of it: same leases, same order.

Nobody who contributed is believed: only what was handed out, how much of it was handed in, and in which order it was added up.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from psycopg import Connection

from gan_core.coordinator import checkpoints
from gan_core.data.images import ImageSet, orders_of
from gan_core.errors import TrainingError
from gan_core.layout import Vectors
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.update import Aggregate, State, advance, initial_state, tensors_of
from gan_core.plan import Plan, checked_plan
from gan_core.policies.announcements import announce
from gan_core.policies.codecs import decode, encode
from gan_core.policies.sampling import Orders
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.units import WorkUnit


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it."""

    iteration: int  # of the class's checkpoint that it is compared with
    images: int
    distance: float  # Euclidean, over all numbers of a state and relative to the class's; 0: bit for bit the same


def replay(
    connection: Connection, name: str, images: ImageSet, watch: Callable[[int, int], None] = lambda done, all_: None
) -> Replayed:
    """Compute a training again up to its latest checkpoint, and compare.

    Args:
        images: the training's.
        watch: told after each iteration how many are done, of how many.

    Raises:
        TrainingError: there is no checkpoint, or it began with a version that didn't note what is needed.
    """
    row = trainings.get(connection, name)
    if trainings.latest_checkpoint(connection, row.id) is None:
        raise TrainingError(
            f"Training {name!r} has no checkpoint yet: there is nothing to compare with. Try again later."
        )
    stored = checkpoints.latest(connection, row.id, checked_plan(row.plan))
    closed = unit_queue.closed(connection, row.id, stored.iteration)
    plans = {version: checked_plan(plan) for version, plan in trainings.plans(connection, row.id).items()}
    plan = plans.get(closed[0].plan_version) if closed else checked_plan(row.plan)
    if plan is None:
        raise _unknown(name, 0)
    state, networks, orders = initial_state(plan), Networks(plan), orders_of(plan, images)
    said = announce(plan, layout_of(plan), 0, state.weights, None)
    for done in closed:
        plan = plans.get(done.plan_version)
        work = unit_queue.computed(connection, row.id, done.number)
        if plan is None or any(piece is None or None in piece for each in work for piece in each.slices or [None]):
            raise _unknown(name, done.number)
        if work:
            slices = [each.slices or [] for each in work]
            _iterate(plan, networks, images, orders, state, said.weights, slices, done.position)
            said = announce(plan, layout_of(plan), state.iteration, state.weights, said)
        else:  # it was undone
            state.iteration, state.position = done.number + 1, done.position
        watch(state.iteration, stored.iteration)
    return Replayed(stored.iteration, state.images, _distance(state, stored))


def _iterate(
    plan: Plan,
    networks: Networks,
    images: ImageSet,
    orders: Orders,
    state: State,
    weights: Vectors,
    work: list[list[list[int]]],
    position: int,
) -> None:
    """One iteration from the weights that machines had and the slices of its contributions."""
    layout = layout_of(plan)
    aggregate = Aggregate(plan)
    for slices in work:
        units = [
            WorkUnit(ordinal=n, epoch=at // len(images), indices=tuple(orders.slice(at, size).tolist()), seed=seed)
            for n, (at, size, seed) in enumerate(slices)
        ]
        vectors, measures = contribute(plan, networks, images, units, weights)
        sent = encode(vectors, layout, plan.codec, units[0].seed)
        aggregate.add(decode(sent, layout, plan.codec), measures.images)
    advance(plan, state, aggregate, position)


def _unknown(name: str, iteration: int) -> TrainingError:
    return TrainingError(
        f"Training {name!r} can't be computed again: from which images iteration {iteration} was made, its version of classgan "
        "didn't write down. Trainings that begin from now on can."
    )


def _distance(ours: State, theirs: State) -> float:
    mine, other = tensors_of(ours), tensors_of(theirs)
    if all(torch.equal(mine[part], tensor) for part, tensor in other.items()):
        return 0.0
    apart = sum(float((mine[part].double() - tensor.double()).square().sum()) for part, tensor in other.items())
    return (apart / sum(float(tensor.double().square().sum()) for tensor in other.values())) ** 0.5
