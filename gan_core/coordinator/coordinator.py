"""The coordinator of one training: it holds the lock and the state, and makes each step of an iteration. Numerics and store meet here.

Whatever happens to this process, a new one continues from what is durable: the last checkpoint, and the accepted
contributions since then, which lead to the very same weights.
"""

import logging
import math
import time
from dataclasses import replace
from pathlib import Path

from psycopg import Connection

from gan_core.coordinator import checkpoints
from gan_core.coordinator.checkpoints import Checkpoints, Snapshot
from gan_core.coordinator.gates import Gates
from gan_core.coordinator.leadership import Leadership
from gan_core.coordinator.pace import quorum_for
from gan_core.coordinator.plans import ask_for, note_step
from gan_core.coordinator.round import Gathered, Lengths, Round, deadline_after, grace_after
from gan_core.data.images import advice, images_of, next_units
from gan_core.errors import Finished, GanError, LeadLost, PayloadError, TrainingError
from gan_core.networks.models import layout_of
from gan_core.networks.optimiser import warm_up
from gan_core.networks.update import Aggregate, State, advance, step_lengths
from gan_core.plan import Plan, checked_plan
from gan_core.policies.announcements import Announcement, announce
from gan_core.policies.codecs import payload_size
from gan_core.store.coordinator import events, runs, trainings, unit_queue, versions
from gan_core.store.engine import Link, wait_for_notice
from gan_core.units import EventKind, TrainingState, WorkUnit, counted

log = logging.getLogger("classgan.coordinator")

TICK = 1.0  # seconds between looks when nobody notifies: a net under LISTEN/NOTIFY
QUIET = 3.0  # seconds without anybody at work, after which Ctrl-C doesn't wait for the iteration's end
GOES_ON = (TrainingState.QUEUED, TrainingState.LAUNCHING, TrainingState.RUNNING)  # what a standby takes over
# Times the images that are expected: what a round opens with that closes in time; the rest goes into the next.
SURPLUS = 1.25
FORGIVEN = 20  # iterations after which an update that went wrong is no longer held against the training


class Coordinator:
    """The one process that moves a training on. Use as a context manager; a second one waits until the first is gone."""

    def __init__(self, url: str, name: str, plan: Plan, cache: Path, data: Path = Path()) -> None:
        self.name, self.plan, self._cache, self._data = name, plan, cache, data
        self.link = Link(url)
        self.stop_asked = ""  # by whom: set from outside, the training pauses at the next chance
        self.layout = layout_of(plan)
        self.training_id = 0
        self.state: State
        self._said: Announcement
        self._lead: Leadership | None = None
        self._checkpoints: Checkpoints | None = None
        self._aggregate: Aggregate | None = None
        self._opened = unit_queue.Opened(quorum=0, position=0)
        self._lengths, self._gates = Lengths(), Gates()
        self._tidied = 0.0
        self._told = 0  # the last event that the log has shown

    def __enter__(self) -> "Coordinator":
        try:
            self._enter()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _enter(self) -> None:
        if "@" in self.plan.data_version:  # before anything is made
            self.link.call(lambda c: versions.data_version(c, self.plan.data_version))
        first = self.link.call(lambda c: trainings.create(c, self.name, self.plan.model_dump(mode="json")))
        self.training_id = first.id
        if first.state is TrainingState.CANCELLED:
            raise TrainingError(f"Training {self.name!r} was cancelled. Start one with another name.")
        self._checkpoints = Checkpoints(self.link.url, self.training_id)
        self.link.call(lambda c: ask_for(c, self.name, self.plan, first))
        self._lead = lead = Leadership(self.link.url, self.training_id, self.name)
        self.link.close()  # from here on, every new connection must hold the lock before it does anything
        self.link = Link(self.link.url, should_stop=lambda: bool(self.stop_asked), on_connect=self._take_hold)
        row = self.link.call(lambda c: trainings.get(c, self.name))
        if lead.waited and row.state not in GOES_ON:
            raise Finished(row.state, row.iteration)  # the one before ended as it should: nothing is left to take over
        self.plan = checked_plan(row.plan)
        self._told = max([0, *(event.id for event in self.link.call(lambda c: events.latest(c, self.name, limit=1)))])
        self._set_state(TrainingState.LAUNCHING, "preparing the images")
        self.link.call(lambda c: runs.begin(c, self.training_id, row.wanted or row.plan))
        try:
            self._launch(row)
        except LeadLost:
            raise
        except GanError as exc:
            self.fail(str(exc), row.iteration)
            raise

    def _launch(self, row: trainings.TrainingRow) -> None:
        """Open the images, find the state, and let workers claim."""
        fingerprint = row.data_fingerprint
        self.images = images_of(
            self.plan, self._cache, self._data, fingerprint, row.data_source, lambda done, total: self._step()
        )
        if fingerprint not in ("", self.images.fingerprint):
            raise TrainingError(
                f"Training {self.name!r} began with other images (fingerprint {fingerprint}; here {self.images.facts}). "
                "Restore them, or start a training with another name.",
            )
        if wanted := self.plan.data_version:
            self.link.call(
                lambda c: versions.require_data(
                    c, wanted, self.plan.data, self.images.fingerprint, self.images.facts, self.images.before
                )
            )
        if warning := advice(self.plan, self.images):
            log.warning("%s", warning)
        warm_up(self.plan)
        self.state = self._resume()
        if self.state.iteration:
            log.info("Training %r continues at iteration %d.", self.name, self.state.iteration)
        self._adopt_wanted_plan()
        self.link.call(lambda c: note_step(c, self.training_id, self.plan))
        self._said = self.link.call(lambda c: checkpoints.said(c, self.training_id, self.plan, self.layout, self.state))
        first = self._said.payload if not self.state.iteration else b""
        self.link.call(
            lambda c: trainings.start(
                c,
                self.training_id,
                self.images.fingerprint,
                len(self.images),
                payload_size(self.layout, self.plan.codec),
                first,
                self.images.source,
                self.images.shards,
            )
        )

    def __exit__(self, *exc_info: object) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._lead is not None:
            self._lead.leave()
        self.link.close()

    def _take_hold(self, connection: Connection) -> None:
        """Lead on this connection: if it dies, so does the right to publish."""
        assert self._lead is not None, "entered"
        self._lead.take_hold(connection)
        connection.execute("LISTEN classgan_submitted")

    # The plan

    def _adopt_wanted_plan(self) -> None:
        """Between two iterations: go on with the plan that somebody asked for meanwhile."""
        row = self.link.call(lambda c: trainings.get(c, self.name))
        if row.wanted is None or self.link.call(lambda c: unit_queue.opened(c, self.training_id, self.state.iteration)):
            return  # an open iteration ends as it began
        wanted = checked_plan(row.wanted)
        if row.iteration:
            self._store(self.state)  # so that no repetition ever crosses this change
        changes = self.plan.differences(wanted)
        self.link.call(lambda c: trainings.change_plan(c, self.training_id, row.wanted or {}, changes))
        self.link.call(lambda c: note_step(c, self.training_id, wanted))
        self.plan, self._lengths = wanted, Lengths()  # another learning rate makes other lengths usual

    def _resume(self) -> State:
        """The state an unbroken run would be in."""
        row = self.link.call(lambda c: trainings.get(c, self.name))
        return checkpoints.resumed(self.link, self.training_id, row.iteration, self.plan, self.layout, self._step)

    # The verbs of an iteration

    @property
    def is_done(self) -> bool:
        done = self.plan.is_done(self.state.iteration, self.state.position, len(self.images))
        # An epoch is over when all its images were learned from.
        return done and not (self.plan.epochs and self._left_over())

    def _left_over(self) -> list[WorkUnit]:
        return self.link.call(lambda c: unit_queue.left_over(c, self.training_id, self.state.iteration - 1))

    def is_due(self, interval: int) -> bool:
        """Whether something that happens every `interval` iterations, and after the last, happens now. 0: never."""
        return bool(interval) and (self.state.iteration % interval == 0 or self.is_done)

    def create_units(self) -> int:
        """Open the next iteration: what the last one closed without, and further units of the epoch's order up to the quorum.

        Returns:
            how many units
        """
        self._step()
        self._adopt_wanted_plan()
        number = self.state.iteration
        if opened := self.link.call(lambda c: unit_queue.opened(c, self.training_id, number)):
            self._opened = opened  # before a pause or a crash; it ends as it began
            return 0
        pace = self.link.call(lambda c: unit_queue.pace(c, self.training_id))
        quorum, seconds = quorum_for(self.plan, pace)
        is_boxed = self.plan.quorum == "auto"
        units, position = self._left_over(), self.state.position
        wanted = quorum - sum(unit.images for unit in units)
        if is_boxed:
            most = max(int(SURPLUS * quorum), len(pace.speeds) * self.plan.images_per_unit)
            ahead = self.plan.epochs * len(self.images) - position if self.plan.epochs else most
            wanted = min(wanted + most - quorum, math.ceil(ahead))
        new, position = next_units(self.plan, position, self.images, wanted)
        units += [replace(unit, ordinal=len(units) + unit.ordinal) for unit in new]
        self._opened = unit_queue.Opened(
            quorum=quorum if is_boxed else sum(unit.images for unit in units),
            position=position,
            seconds=seconds if is_boxed else None,
        )
        self.link.call(
            lambda c: unit_queue.create_units(
                c, self.training_id, number, self._opened.quorum, position, units, seconds, is_boxed
            )
        )
        if number and number % self.plan.checkpoint_interval == 0:
            assert self._checkpoints is not None, "entered"
            self._checkpoints.write_behind(self.state)  # only now: workers are busy while the state is copied
        return len(units)

    def gather(self) -> Gathered:
        """Wait for the quorum, or for the deadline and the minimum quorum; decode and add up contributions as they come.

        Raises:
            Finished: a person paused or cancelled the training meanwhile.
        """
        number, quorum, started = self.state.iteration, self._opened.quorum, time.monotonic()
        box = self._opened.seconds
        self._lengths.at_least = step_lengths(self.plan, self.state)
        needed = math.inf if box else quorum
        round_ = Round(self.plan, self.layout, self.training_id, number, needed, self._lengths, self._gates)
        arrivals = self.link.call(lambda c: unit_queue.arrival_seconds(c, self.training_id))
        moved, most = started, self.plan.deadline_ceiling
        deadline = grace_after(arrivals, box, most) if box else deadline_after(arrivals, self.plan)
        while True:
            self._step()
            closed = self.link.call(round_.look)
            if closed and box and not round_.images and round_.progress.open:
                self.link.call(lambda c: unit_queue.extend(c, self.training_id, number))  # nobody was there
                closed, started = False, time.monotonic()
            late = time.monotonic() - started >= deadline and round_.images >= self.plan.min_quorum * quorum
            if (closed or late) and self.link.call(round_.finish):
                if 0 < round_.images < quorum and (late or not box):
                    why = f"its deadline of {deadline:.0f} s has passed" if late else "the other units were given up"
                    self._note(
                        EventKind.CLOSED_EARLY,
                        f"Iteration {number} closed with {round_.images:,} of {counted(quorum, 'image')}: {why}.",
                    )
                self._aggregate = round_.aggregate
                self._tell()
                return round_.gathered
            moved = time.monotonic() if round_.progress.leased else moved
            finishing = bool(self.stop_asked) and time.monotonic() - moved < QUIET  # Ctrl-C lets the iteration end
            self.stop_if_asked(may_wait=bool(round_.progress.leased) or finishing)
            waited = time.monotonic() - started
            most = min([TICK, *(moment - waited for moment in (box, deadline) if moment and moment > waited)])
            self.link.call(lambda c, w=waited, m=most: self._wait(c, round_, w, m))
            self._tell()

    def stop_if_asked(self, may_wait: bool = False) -> None:
        """Stop if a person wants it.

        Args:
            may_wait: for units that are still out and may complete the iteration.

        Raises:
            Finished: nothing is to be done any more.
        """
        if self.stop_asked and not may_wait:
            self.pause(self.stop_asked, f"stopped with {self.stop_asked}; `classgan resume {self.name}` goes on")
        state = self.link.call(lambda c: trainings.get(c, self.name)).state
        if state is not TrainingState.RUNNING and not may_wait:
            raise Finished(state, self.state.iteration)

    def _wait(self, connection: Connection, round_: Round, waited: float, most: float) -> None:
        if wait_for_notice(connection, most) and time.monotonic() - self._tidied < TICK:
            return  # a flood of notices must not keep the rest from being done
        self._tidied = time.monotonic()
        unit_queue.expire_leases(connection)
        row, now = trainings.get(connection, self.name), round_.progress
        idle = waited > 3 and now.open and not now.leased and row.state is TrainingState.RUNNING
        message = f"waiting for workers: {now.workers_online} online, 1 needed" if idle else ""
        if row.state is TrainingState.RUNNING and message != row.message:
            trainings.set_message(connection, self.training_id, message)
            if message:
                log.info(
                    "Training %r is %s. Start one: classgan worker NAME here, or classgan join INVITE on a student's machine",
                    self.name,
                    message,
                )

    def pause(self, author: str, message: str) -> None:
        """Hand nothing out any more; the iteration at hand ends if the units that are out come in."""
        self.link.call(lambda c: trainings.control(c, self.training_id, TrainingState.PAUSED, author, message))

    def publish(self, gathered: Gathered) -> None:
        """Combine what was gathered, take the step, and announce the next weights in one transaction.

        A step to numbers that are not finite is taken back: the last good weights stay, and the training goes on with
        other images; when it happens again soon, it pauses.

        Raises:
            Finished: it was the second such step.
            LeadLost: another coordinator leads meanwhile; nothing was published.
        """
        assert self._aggregate is not None, "gather comes first"
        self._step()
        iteration = self.state.iteration
        refused = gathered.exploded or ("" if gathered.images else "no contribution to this iteration was usable")
        if not refused:
            advance(self.plan, self.state, self._aggregate, self._opened.position)
        self._aggregate = None
        said = self._said.again()
        try:
            if not refused:
                said = announce(self.plan, self.layout, iteration + 1, self.state.weights, self._said)
        except PayloadError as exc:
            refused = f"the step it was part of led to weights that can't be used: {exc}"
        if refused:
            self.state = self._resume()
            self.state.iteration, self.state.position = iteration + 1, self._opened.position
        self.link.call(
            lambda c: trainings.publish(
                c,
                self.training_id,
                self._term,
                iteration,
                [] if refused else list(gathered.contributions),
                self.state.images,
                self._opened.position,
                said.payload,
                said.change,
                refused,
            )
        )
        self._said = said
        if refused:
            self._answer_accident(iteration, refused)

    def _answer_accident(self, iteration: int, reason: str) -> None:
        """Note it; the second one within FORGIVEN iterations pauses the training."""
        before = self.link.call(
            lambda c: events.count(c, self.training_id, EventKind.ROLLED_BACK, iteration - FORGIVEN)
        )
        undone = f"Iteration {iteration} was undone, the weights before it stay: {reason}."
        self._note(EventKind.ROLLED_BACK, undone, iteration)
        if before:
            remedy = (
                f"iteration {iteration} went wrong, for the second time in a short while: {reason}. Lower the learning rates "
                f"(classgan change {self.name} --set learning_rate_g=…) and go on (classgan resume {self.name})"
            )
            self.pause("its coordinator", remedy)
            self._tell()
            raise Finished(TrainingState.PAUSED, self.state.iteration)

    def _step(self) -> None:
        assert self._lead is not None, "entered"
        self._lead.step()

    @property
    def _term(self) -> int:
        assert self._lead is not None, "entered"
        assert self._lead.term is not None, "entered"
        return self._lead.term

    def snapshot(self) -> Snapshot:
        """A copy of the averaged generator as it is now."""
        return Snapshot(self.training_id, self.name, self.plan, self.state)

    def finish(self) -> None:
        """Store the final state and mark the training as done."""
        self._store(self.state)
        self._set_state(TrainingState.SUCCEEDED)

    def fail(self, reason: str, iteration: int | None = None) -> None:
        """Mark the training as failed, with the sentence that says why; unless somebody else has moved it on."""
        at = self.state.iteration if iteration is None else iteration
        if self.link.call(lambda c: trainings.get(c, self.name)).iteration <= at:
            self._set_state(TrainingState.FAILED, reason)
            self._note(EventKind.FAILED, reason, at)

    def _store(self, state: State) -> None:
        assert self._checkpoints is not None, "entered"
        self._checkpoints.write(state)

    def _set_state(self, state: TrainingState, message: str = "") -> None:
        self.link.call(lambda c: trainings.set_state(c, self.training_id, state, message))

    def _note(self, kind: EventKind, text: str, iteration: int | None = None) -> None:
        at = self.state.iteration if iteration is None else iteration
        self.link.call(lambda c: events.note(c, self.training_id, at, kind, text))

    def _tell(self) -> None:
        """Show in the log what the history has that the log hasn't."""
        for event in self.link.call(lambda c: events.latest(c, self.name, after=self._told)):
            log.info("%s", event.text)
            self._told = event.id
