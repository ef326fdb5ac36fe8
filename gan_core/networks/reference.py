"""The same training in one process, without database or Prefect: what any number of machines must equal.

`train_local` does unit by unit what a class does. `train_plain` is the ordinary single-machine loop: the measure
for quality, and the way to train alone.
"""

from collections.abc import Callable

from gan_core.data.images import ImageSet, next_units
from gan_core.layout import Vectors
from gan_core.networks.gradients import Walk, contribute
from gan_core.networks.inputs import batches
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.update import State, advance, aggregate_all, initial_state
from gan_core.plan import Plan
from gan_core.policies.announcements import announce
from gan_core.policies.codecs import decode, encode
from gan_core.units import Measures, WorkUnit

Watcher = Callable[[State, list[Measures]], None]


def train_local(
    plan: Plan, images: ImageSet, watch: Watcher = lambda state, measures: None, state: State | None = None
) -> State:
    """Train to the plan's end: the same units, contributions, codecs and order as a class, one unit a lease.

    Args:
        watch: called after each iteration with the state and the measures of its contributions.
        state: where to continue; moved on in place. None starts from the plan's seed.
    """
    layout, networks = layout_of(plan), Networks(plan)
    state = state or initial_state(plan)
    said = announce(plan, layout, state.iteration, state.weights, None)
    while not plan.is_done(state.iteration, state.position, len(images)):
        units, position = next_units(plan, state.position, images)
        measures: list[Measures] = []

        def contributions(
            units: list[WorkUnit] = units, weights: Vectors = said.weights, measures: list[Measures] = measures
        ):
            for unit in units:
                vectors, measured = contribute(plan, networks, images, [unit], weights)
                measures.append(measured)
                yield decode(encode(vectors, layout, plan.codec, unit.seed), layout, plan.codec), measured.images

        advance(plan, state, aggregate_all(plan, contributions()), position)
        said = announce(plan, layout, state.iteration, state.weights, said)
        watch(state, measures)
    return state


def train_plain(plan: Plan, images: ImageSet, watch: Watcher = lambda state, measures: None) -> State:
    """The ordinary loop: one machine, one Adam a network that lives as long as the training, a step for each batch.

    The averaged generator is updated and `watch` called after each of the plan's iterations, so that its pictures
    and figures can be laid beside those of a class that has seen the same images.
    """
    networks, state = Networks(plan), initial_state(plan)
    walk = Walk(plan, networks)
    networks.load(state.weights)
    while not plan.is_done(state.iteration, state.position, len(images)):
        units, position = next_units(plan, state.position, images)
        for unit in units:
            for batch in batches(plan, images, unit, networks.device):
                walk.take(batch)
        after, before = networks.read(), state.weights
        change = Vectors(after.generator - before.generator, after.discriminator - before.discriminator)
        alone = plan.changed(contribution="local_steps", aggregation="mean")
        advance(alone, state, aggregate_all(alone, [(change, sum(unit.images for unit in units))]), position)
        state.weights = after
        watch(state, [])
    return state
