"""Writes checkpoints to the database, and restores a training's state from them.

Checkpoints are written behind: a crash before one is complete only means repeating a few iterations more, from the
contributions that are still there.
"""

import logging
import threading
from collections.abc import Callable

import safetensors.torch
from psycopg import Connection

from gan_core.errors import TrainingError
from gan_core.layout import Layout
from gan_core.networks.update import Aggregate, State, advance, initial_state, tensors_of
from gan_core.plan import Plan
from gan_core.policies.announcements import Announcement, announce, announced
from gan_core.policies.codecs import decode
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.engine import Link

log = logging.getLogger("classgan.coordinator")


class Snapshot:
    """The averaged generator after an iteration, and D as it is, safe from what comes next.

    No dataclass: Prefect looks into those.
    """

    def __init__(self, training_id: int, name: str, plan: Plan, state: State) -> None:
        self.training_id, self.name, self.plan = training_id, name, plan
        self.iteration, self.images, self.average = state.iteration, state.images, state.average.clone()
        self.discriminator = state.weights.discriminator.clone()


class Checkpoints:
    """Writes a training's states, one at a time, on a connection of its own."""

    def __init__(self, url: str, training_id: int) -> None:
        self._link, self._training_id = Link(url), training_id
        self._writer: threading.Thread | None = None

    def write_behind(self, state: State) -> None:
        """Copy the state and write it in the background; skipped while the last one is still on its way."""
        if self._writer is not None and self._writer.is_alive():
            return
        self._writer = threading.Thread(target=self._save, args=_packed(state), name="checkpoint", daemon=True)
        self._writer.start()

    def write(self, state: State) -> None:
        """Write the state; returns when it is durable."""
        self._join()
        self._save(*_packed(state))

    def close(self) -> None:
        self._join()
        self._link.close()

    def _save(self, iteration: int, counters: dict[str, int], payload: bytes) -> None:
        self._link.call(lambda c: trainings.save_checkpoint(c, self._training_id, iteration, counters, payload))

    def _join(self) -> None:
        if self._writer is not None:
            self._writer.join()


def latest(connection: Connection, training_id: int, plan: Plan) -> State:
    """The newest stored state; the plan's initial one if none was stored."""
    state = initial_state(plan)
    found = trainings.latest_checkpoint(connection, training_id)
    if found:
        state.iteration, counters, payload = found
        state.images, state.position, state.steps = counters["images"], counters["position"], counters["steps"]
        stored = safetensors.torch.load(payload)
        for name, tensor in tensors_of(state).items():
            tensor.copy_(stored[name])
    return state


def resumed(
    link: Link, training_id: int, iteration: int, plan: Plan, layout: Layout, on_step: Callable[[], None]
) -> State:
    """The state an unbroken run would be in at this iteration: the last checkpoint, then the accepted contributions since.

    A checkpoint may be on its way meanwhile. When it arrives, contributions that it makes unnecessary go: then it is taken.

    Raises:
        TrainingError: a contribution that would be needed is gone.
    """
    state = link.call(lambda c: latest(c, training_id, plan))
    first = state.iteration
    if state.iteration < iteration:
        log.info("Repeating iterations %d to %d from their contributions.", state.iteration, iteration - 1)
    positions = link.call(lambda c: unit_queue.positions(c, training_id, state.iteration, iteration))
    for number in range(state.iteration, iteration):
        on_step()
        aggregate = Aggregate(plan)
        for arrival in link.call(lambda c, n=number: unit_queue.arrivals(c, training_id, n)):
            payload = link.call(lambda c, a=arrival: unit_queue.payload(c, a.id))
            if payload is None:
                if link.call(lambda c: latest(c, training_id, plan)).iteration > first:
                    return resumed(link, training_id, iteration, plan, layout, on_step)
                raise TrainingError(
                    f"Contribution {arrival.id} is gone from the database, so iteration {number} can't be repeated."
                )
            aggregate.add(decode(payload, layout, plan.codec), arrival.images)
        if aggregate.images:
            advance(plan, state, aggregate, positions[number])
        else:  # it was rolled back
            state.iteration, state.position = number + 1, positions[number]
    return state


def said(connection: Connection, training_id: int, plan: Plan, layout: Layout, state: State) -> Announcement:
    """What machines have as this state's weights. If they follow by changes, these aren't quite the state's: the database knows them."""
    if state.iteration and plan.weights_codec == "int4":
        payload = trainings.weights(connection, training_id, state.iteration)
        return Announcement(announced(plan, layout, payload), payload)
    return announce(plan, layout, state.iteration, state.weights, None)


def _packed(state: State) -> tuple[int, dict[str, int], bytes]:
    """Iteration, counters and tensors of a state."""
    counters = {"images": state.images, "position": state.position, "steps": state.steps}
    return state.iteration, counters, safetensors.torch.save(tensors_of(state))
