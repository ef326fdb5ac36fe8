"""One process's hold on one training: lock, state, and the verbs of an iteration. Numerics and store meet here.

Whatever happens to this process, a new one continues from what is durable: the last checkpoint, and the accepted
contributions since then, which lead to the very same weights.
"""

import logging
import statistics
import time
from pathlib import Path

from psycopg import Connection

from gan_core import checkpoints
from gan_core.checkpoints import Checkpoints, Snapshot
from gan_core.errors import GanError, PayloadError, TrainingError
from gan_core.gradients import warm_up
from gan_core.images import open_images
from gan_core.models import Vectors, layout_of
from gan_core.plan import Plan, checked_plan
from gan_core.policies.codecs import decode, encode, payload_size
from gan_core.policies.sampling import cut_units
from gan_core.rounds import Gathered, Round
from gan_core.store import queue, trainings
from gan_core.store.engine import Link, wait_for_notice
from gan_core.units import TrainingState
from gan_core.update import Aggregate, State, advance

log = logging.getLogger("classgan.coordinator")

TICK = 1.0  # seconds between looks when nobody notifies: a net under LISTEN/NOTIFY
DEVIATIONS = 6.0  # how many (scaled) median deviations later than usual an answer may come


class Finished(Exception):
    """A person ended or paused the training while it was waiting."""

    def __init__(self, state: TrainingState) -> None:
        super().__init__(f"the training was {state}")
        self.state = state


class Coordinator:
    """The one process that moves a training on. Use as a context manager; a second one waits until the first is gone."""

    def __init__(self, url: str, name: str, plan: Plan, cache: Path, data: Path = Path()) -> None:
        self.name, self.plan, self._cache, self._data = name, plan, cache, data
        self.link = Link(url, on_connect=self._take_hold)
        self.layout = layout_of(plan)
        self.training_id = 0
        self.state: State
        self._aggregate: Aggregate | None = None
        self._position = 0

    def __enter__(self) -> "Coordinator":
        try:
            self._enter()
        except BaseException:
            self.link.close()
            raise
        return self

    def _enter(self) -> None:
        self.training_id = self.link.call(
            lambda c: trainings.create(c, self.name, self.plan.model_dump(mode="json"))
        ).id
        self._checkpoints = Checkpoints(self.link.url, self.training_id)
        self.link.close()  # from here on, every new connection must hold the lock before it does anything
        row = self.link.call(lambda c: trainings.get(c, self.name))
        if row.state is TrainingState.CANCELLED:
            raise TrainingError(f"Training {self.name!r} was cancelled. Start one with another name.")
        self._adopt(row.plan)
        self._set_state(TrainingState.LAUNCHING, "preparing the images")
        try:
            self._launch(row.data_fingerprint)
        except GanError as exc:
            self.fail(str(exc), row.iteration)
            raise

    def _launch(self, fingerprint: str) -> None:
        """Open the images, find the state, and let workers claim."""
        self.images = open_images(
            self.plan.data,
            image_size=self.plan.image_size,
            channels=self.plan.channels,
            cache=self._cache,
            base=self._data,
        )
        if fingerprint not in ("", self.images.fingerprint):
            raise TrainingError(
                f"Training {self.name!r} began with other images (fingerprint {fingerprint}, here {self.images.fingerprint}). "
                "Restore them, or start a training with another name.",
            )
        warm_up(self.plan)
        self.state = self._resume()
        first = encode(self.state.weights, self.layout, self.plan.weights_codec) if not self.state.iteration else b""
        size = payload_size(self.layout, self.plan.codec)
        self.link.call(
            lambda c: trainings.start(c, self.training_id, self.images.fingerprint, len(self.images), size, first)
        )

    def __exit__(self, *exc_info: object) -> None:
        self._checkpoints.close()
        self.link.close()

    def _take_hold(self, connection: Connection) -> None:
        """Lock the training on this connection: if the connection dies, so does the right to publish."""
        if not self.training_id:
            return
        waiting = False
        while not trainings.try_lock(connection, self.training_id):
            if not waiting:
                log.warning(
                    "Another coordinator leads training %r. Standing by; this one takes over when that one ends.",
                    self.name,
                )
                waiting = True
            time.sleep(0.5)
        if waiting:
            log.warning("Taking over training %r.", self.name)
        connection.execute("LISTEN classgan_submitted")

    def _adopt(self, stored: dict[str, object]) -> None:
        """Continue with the stored plan; take over what may change, refuse what may not."""
        before = checked_plan(stored)
        if conflicts := before.conflicts_with(self.plan):
            changes = ", ".join(f"{f} was {getattr(before, f)!r}, now {getattr(self.plan, f)!r}" for f in conflicts)
            raise TrainingError(
                f"Training {self.name!r} exists with another plan: {changes}. Give the new one another name, or start this one with its old plan.",
            )
        if before != self.plan:
            self.link.call(lambda c: trainings.set_plan(c, self.training_id, self.plan.model_dump(mode="json")))

    # Resuming

    def _resume(self) -> State:
        """The state an unbroken run would be in: the last checkpoint, then the accepted contributions since."""
        row = self.link.call(lambda c: trainings.get(c, self.name))
        state = self.link.call(lambda c: checkpoints.latest(c, self.training_id, self.plan))
        if state.iteration < row.iteration:
            log.info("Repeating iterations %d to %d from their contributions.", state.iteration, row.iteration - 1)
        positions = self.link.call(lambda c: queue.positions(c, self.training_id, state.iteration, row.iteration))
        for number in range(state.iteration, row.iteration):
            aggregate = Aggregate(self.plan)
            for arrival in self.link.call(lambda c, n=number: queue.arrivals(c, self.training_id, n)):
                aggregate.add(self._decoded(arrival.id), arrival.images)
            advance(self.plan, state, aggregate.result(), aggregate.images, positions[number])
        if row.iteration:
            log.info("Training %r continues at iteration %d.", self.name, row.iteration)
        return state

    # The verbs of an iteration

    @property
    def is_done(self) -> bool:
        return self.plan.is_done(self.state.iteration, self.state.position, len(self.images))

    def is_due(self, interval: int) -> bool:
        """Whether something that happens every `interval` iterations, and after the last, happens now."""
        return self.state.iteration % interval == 0 or self.is_done

    def create_units(self) -> int:
        """Open the next iteration: cut its units from the epoch's order and hand them out. Returns how many."""
        units, self._position = cut_units(self.plan, self.state.position, len(self.images), self.images.labels)
        self.link.call(
            lambda c: queue.create_units(
                c, self.training_id, self.state.iteration, self.plan.quorum, self._position, units
            )
        )
        return len(units)

    def gather(self) -> Gathered:
        """Wait for the quorum, or for the deadline and the minimum quorum; decode and add up contributions as they come.

        Raises:
            Finished: a person paused or cancelled the training meanwhile.
        """
        started, round_ = time.monotonic(), Round(self.plan, self.layout, self.training_id, self.state.iteration)
        deadline = self._deadline()
        while True:
            closed = self.link.call(round_.look)
            late = time.monotonic() - started >= deadline and round_.images >= self.plan.min_quorum * self.plan.quorum
            if closed or late:
                if not closed:
                    log.warning(
                        "Closing iteration %d with %d of %d images: its deadline of %.0f s has passed.",
                        self.state.iteration,
                        round_.images,
                        self.plan.quorum,
                        deadline,
                    )
                self.link.call(round_.finish)
                self._aggregate = round_.aggregate
                return round_.gathered
            self.link.call(lambda c: self._wait(c, time.monotonic() - started))

    def _deadline(self) -> float:
        """Seconds after which the minimum quorum suffices: this training's own median arrival plus DEVIATIONS deviations."""
        seconds = self.link.call(lambda c: queue.arrival_seconds(c, self.training_id))
        if len(seconds) < 5:
            return self.plan.deadline_ceiling
        middle = statistics.median(seconds)
        spread = 1.4826 * statistics.median(abs(s - middle) for s in seconds)  # equals σ for normal arrivals
        return min(self.plan.deadline_ceiling, max(self.plan.deadline_floor, middle + DEVIATIONS * spread))

    def _wait(self, connection: Connection, waited: float) -> None:
        if wait_for_notice(connection, TICK):
            return
        queue.expire_leases(connection)
        row = trainings.get(connection, self.name)
        if row.state is not TrainingState.RUNNING:
            raise Finished(row.state)
        now = queue.progress(connection, self.training_id, self.state.iteration)
        message = (
            ""
            if waited < 3 or now.leased
            else (
                f"waiting for workers: {now.workers_online} at work, {now.open} units open. "
                "A worker that is up starts within seconds; to start one: prefect worker start --pool students"
            )
        )
        if message != row.message:
            trainings.set_message(connection, self.training_id, message)
            if message:
                log.info("Training %r is %s", self.name, message)

    def publish(self, gathered: Gathered) -> None:
        """Combine what was gathered, take the step, and announce the next weights in one transaction.

        Raises:
            TrainingError: the step led to numbers that are not finite; nothing was published.
        """
        assert self._aggregate is not None, "gather comes first"
        iteration = self.state.iteration
        advance(self.plan, self.state, self._aggregate.result(), gathered.images, self._position)
        self._aggregate = None
        try:
            payload = encode(self.state.weights, self.layout, self.plan.weights_codec)
        except PayloadError as exc:
            raise TrainingError(
                f"Iteration {iteration} of {self.name!r} led to weights that can't be used: {exc}. They were not published: "
                "lower the learning rates and start the training again; it continues from the last good iteration.",
            ) from exc
        self.link.call(
            lambda c: trainings.publish(
                c,
                self.training_id,
                iteration,
                list(gathered.contributions),
                self.state.images,
                self._position,
                payload,
            )
        )
        if self.state.iteration % self.plan.checkpoint_interval == 0:
            self._checkpoints.write_behind(self.state)

    def snapshot(self) -> Snapshot:
        """A copy of the averaged generator as it is now."""
        return Snapshot(self.training_id, self.name, self.plan, self.state)

    def finish(self) -> None:
        """Store the final state and mark the training as done."""
        self._checkpoints.write(self.state)
        self._set_state(TrainingState.SUCCEEDED)

    def fail(self, reason: str, iteration: int | None = None) -> None:
        """Mark the training as failed, with the sentence that says why; unless somebody else has moved it on."""
        at = self.state.iteration if iteration is None else iteration
        if self.link.call(lambda c: trainings.get(c, self.name)).iteration <= at:
            self._set_state(TrainingState.FAILED, reason)

    def _set_state(self, state: TrainingState, message: str = "") -> None:
        self.link.call(lambda c: trainings.set_state(c, self.training_id, state, message))

    def _decoded(self, contribution_id: int) -> Vectors:
        payload = self.link.call(lambda c: queue.payload(c, contribution_id))
        if payload is None:
            raise TrainingError(
                f"Contribution {contribution_id} of {self.name!r} is gone from the database, so its iteration can't be repeated."
            )
        return decode(payload, self.layout, self.plan.codec)
