"""A student's machine at work: lease, compute, submit, again. The next unit computes while the last one uploads."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

from gan_core.data.images import ImageSet, images_of, require_same_data
from gan_core.devices.hardware import hardware
from gan_core.errors import DeviceBroken, GanError, PayloadError, StoreError
from gan_core.layout import Vectors
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.optimiser import warm_up
from gan_core.networks.self_test import tested
from gan_core.plan import Plan, checked_plan
from gan_core.policies.codecs import encode
from gan_core.policies.trails import Trail
from gan_core.store import student
from gan_core.store.student import Class
from gan_core.units import Lease, Measures, Submission, Verdict, first_of
from gan_core.worker.delivery import Delivery
from gan_core.worker.device_choice import DeviceChoice
from gan_core.worker.prepared import Prepared
from gan_core.worker.tally import Tally
from gan_core.worker.watchdog import Watchdog

log = logging.getLogger("classgan.shift")

LOOK = 5.0  # seconds between looks for a training whose data has to be fetched, while there is nothing to do
TICK = 1.0  # seconds between looks for work when nobody notifies
HEARTBEAT = 5.0  # seconds, and a little more in a large class; a lease of 15 s survives two lost beats in a small one
PAUSE_AFTER_FAULT = 10.0  # seconds, after a unit that this machine couldn't compute; then twice as long each time
LONGEST_PAUSE = 600.0  # seconds
HUNG = 60.0  # seconds that computing may still be stuck after its lease was given back; then nothing but its end helps


class LeaseLost(Exception):
    """Computing this lease further helps nobody."""


class Shift:
    """Leases units until told to stop, until the time is up, or until there was nothing to do for a while.

    Args:
        url: of the class server, or of the database, with the student's login.
        name: of this worker.
        device: to compute on, as in `devices.choices`; with `+`, several share out gradients.
        cache: folder of resized images.
        data: where relative paths in a plan start.
        should_stop: asked between batches; once true, the current lease is finished and submitted, then the shift ends.
        run: the Prefect run that it works in, so that it can be shown as crashed if this machine vanishes.
        on_hang: called when a device hangs for good; must end the process, for nothing else ends a driver's call.
    """

    def __init__(
        self,
        url: str,
        name: str,
        device: str,
        cache: Path,
        data: Path = Path(),
        should_stop: Callable[[], bool] = lambda: False,
        run: UUID | None = None,
        on_hang: Callable[[], None] = lambda: None,
    ) -> None:
        self.run_id = run
        self.name, self.cache, self.data = name, cache, data
        self._devices, self._on_hang = DeviceChoice(device), on_hang
        self.device = self._devices.device  # as the class knows it
        self._pause_after_fault = PAUSE_AFTER_FAULT
        self.boot: UUID = uuid4()  # a restarted machine never continues its dead self's leases
        self.tally = Tally()
        self._asked_to_stop = should_stop
        self._stopping = False
        self._ended = threading.Event()
        # An outage ends the waiting only when the shift is to end anyway.
        self._main = student.linked(url, self.should_stop, student.listen)
        self._upload = student.linked(url, self.should_stop)
        self._prepared: dict[int, Prepared] = {}
        self._delivery: Delivery | None = None  # of a training's images
        self._sought = float("-inf")  # when it was last looked for one
        self._local: set[int] = set()  # trainings whose data lies on every machine: nothing to fetch
        self._open: set[int] = set()  # leases not yet answered
        self._lost: set[int] = set()  # leases that the database no longer counts as ours
        self._watchdog = Watchdog()
        self._round_ends: float | None = None  # of the lease at hand, by the monotonic clock
        self._upload_seconds = 0.0  # that a contribution usually takes to be handed in

    def should_stop(self) -> bool:
        if not self._stopping and self._asked_to_stop():
            log.info("%s was asked to stop: finishing the unit at hand.", self.name)
            self._stopping = True
        return self._stopping

    def run(
        self,
        max_seconds: float = float("inf"),
        idle_seconds: float = float("inf"),
        report: Callable[[Tally], None] = lambda t: None,
    ) -> Tally:
        """Work. Returns what was done; whatever was leased and not answered is given back.

        Args:
            max_seconds: end after about this long, at the next unit.
            idle_seconds: end when there was nothing to do for this long.
            report: called after each answer.

        Raises:
            StoreError: this login may not contribute.
            DeviceBroken: only a fresh process can use the device again.
        """
        self.worker = self._main.call(
            lambda c: student.register(c, self.name, self.boot, self.device, hardware(self.device), self.run_id)
        )
        heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        heart.start()
        uploads, pending = ThreadPoolExecutor(1, thread_name_prefix="upload"), None
        idle_since = time.monotonic()
        try:
            while not self.should_stop() and time.monotonic() - self.tally.started < max_seconds:
                lease = self._main.call(self._claim)
                if lease is None and pending is not None:  # with the answer in, it may be this machine's turn
                    pending = self._settled(pending, report)
                    continue
                if lease is None:
                    self._seek_data()
                    if self._delivery is not None and not self._delivery.is_complete:
                        idle_since = time.monotonic()  # what this machine waits for is on its way
                    if time.monotonic() - idle_since > idle_seconds:
                        break
                    self._main.call(lambda c: student.wait_for_work(c, TICK))
                    continue
                self._open.add(lease.id)
                computed = self._compute(lease)
                pending = self._settled(pending, report)  # one upload at a time: its memory is one contribution's
                if computed is not None:
                    pending = uploads.submit(self._submit, lease, *computed)
                idle_since = time.monotonic()
            self._settled(pending, report)
        finally:
            uploads.shutdown()
            if self._delivery is not None:
                self._delivery.close()
            self._give_back("the shift ended")
            self._ended.set()
            heart.join()
            self._main.close()
            self._upload.close()
        return self.tally

    def _claim(self, connection: Class) -> Lease | None:
        asked, ready = time.monotonic(), (0, 0)
        if (delivery := self._delivery) is not None:
            ready = delivery.training_id, delivery.ready
        lease = student.claim(connection, self.worker, self.boot, *ready)
        self._round_ends = None if lease is None or lease.seconds_left is None else asked + lease.seconds_left
        return lease

    def _enough(self) -> bool:
        """Whether another batch would be handed in after the round has closed."""
        assert self._round_ends is not None, "only asked of rounds that close in time"
        return time.monotonic() + self._watchdog.usual + self._upload_seconds > self._round_ends

    def _seek_data(self) -> None:
        """Begin to fetch the images of a training that wants workers, if they come in shards. No lease waits for it."""
        if time.monotonic() - self._sought < LOOK:
            return
        self._sought = time.monotonic()
        wanted = self._main.call(student.trainings)
        if self._delivery is not None:
            if self._delivery.training_id in wanted:
                return
            self._delivery.close()
            self._delivery = None
        for number in sorted(wanted.keys() - self._local):
            known = self._main.call(lambda c, n=number: student.read_training(c, n))
            if known.data_fingerprint and not known.shards:
                self._local.add(number)
            elif known.shards:
                self._delivery = Delivery(number, known, self.cache, self.data)
                return

    def _compute(self, lease: Lease) -> tuple[bytes, bytes, Measures] | None:
        """The lease's payload, trail and measures, or None (and the lease given back) if this machine can't."""
        try:
            training = self._prepare(lease)
            if training is None:
                self._release(lease.id, "the weights of its iteration are gone")
                return None
            vectors, trail, measures = self._contribution(training, lease)
            try:
                payload = encode(vectors, training.layout, training.plan.codec, lease.units[0].seed)
                self._pause_after_fault = PAUSE_AFTER_FAULT
                return payload, trail.encode() if trail else b"", measures
            except PayloadError as exc:  # not this machine's fault, so it goes on
                log.warning("Unit %d of iteration %d: %s.", lease.units[0].ordinal, lease.iteration, exc)
                self._release(lease.id, str(exc), spoiled=True)
                return None
        except (StoreError, DeviceBroken):
            raise
        except LeaseLost as exc:
            log.info("Unit %d of iteration %d: %s.", lease.units[0].ordinal, lease.iteration, exc)
            self._open.discard(lease.id)
            self.tally.lost += 1
            return None
        except Exception as exc:  # noqa: BLE001  the outermost loop: whatever it is, the unit must go to someone else
            log.error(
                "This machine can't compute unit %d of iteration %d: %s", lease.units[0].ordinal, lease.iteration, exc
            )
            self._release(lease.id, str(exc))
            self._pause(self._pause_after_fault)
            self._pause_after_fault = min(LONGEST_PAUSE, 2 * self._pause_after_fault)
            return None
        finally:
            self._watchdog.end()

    def _contribution(self, training: Prepared, lease: Lease) -> tuple[Vectors, Trail | None, Measures]:
        """What the lease asks for; after a fault of the device once more, on another one if need be."""
        while True:
            self._watchdog.begin(lease.id)
            try:
                return self._computed(training, lease)
            except (LeaseLost, GanError):
                raise
            except Exception as exc:
                if self._devices.is_last:
                    raise
                # Without its traceback, which would hold the networks: their memory is needed now.
                fault = exc.with_traceback(None)
            self._prepared, training.networks = {}, ()
            self._devices.move_on(fault)
            training.networks = self._networks(training.plan, lease, training.step_mb)
            self._prepared = {lease.training_id: training}

    def _computed(self, training: Prepared, lease: Lease) -> tuple[Vectors, Trail | None, Measures]:
        (first, *more), plan = training.networks, training.plan
        trail = Trail(training.layout, lease.units) if plan.checks == "sampled" else None
        see, beat = trail.add if trail else None, self._beat_of(lease)
        enough = None if self._round_ends is None else self._enough
        vectors, measures = contribute(
            plan, first, training.images, lease.units, training.weights, beat, more, see, enough
        )
        return vectors, trail, measures

    def _networks(self, plan: Plan, lease: Lease, step_mb: int, another: bool = False) -> tuple[Networks, ...]:
        """The plan's networks on the best device that works. If it isn't the one that the class knows, the class is told, also
        where it is too small: then it leases nothing more of this training.
        """
        self._watchdog.begin(lease.id)
        try:
            return self._devices.fit(plan, self._beat_of(lease), another, step_mb)
        finally:
            if self._devices.device != self.device:
                self.device = self._devices.device
                why = self._devices.why
                self._main.call(lambda c: student.change_device(c, self.worker, self.boot, lease.id, self.device, why))

    def _beat_of(self, lease: Lease) -> Callable[[], None]:
        def beat() -> None:
            self._watchdog.feed()
            if lease.id in self._lost:
                raise LeaseLost("given up: another machine was faster, or the lease ran out")

        return beat

    def _prepare(self, lease: Lease) -> Prepared | None:
        """The lease's training with its iteration's weights; None if those are gone. Both are kept for the next lease."""
        training = self._prepared.get(lease.training_id)
        if training is not None and training.version != lease.plan_version:
            known = self._main.call(lambda c: student.read_training(c, lease.training_id, lease.plan_version))
            before, training.plan, training.version = training.plan, checked_plan(known.plan), known.plan_version
            training.step_mb = known.step_mb
            if tested(training.plan) != tested(before):
                self._prepared, training.networks = {}, ()
                training.networks = self._networks(training.plan, lease, known.step_mb, another=True)
                self._prepared = {lease.training_id: training}
        if training is None:
            known = self._main.call(lambda c: student.read_training(c, lease.training_id, lease.plan_version))
            plan = checked_plan(known.plan)
            images = self._delivered(lease)
            if images is None:
                images = images_of(plan, self.cache, self.data, known.data_fingerprint)
                require_same_data(images, known.data_fingerprint, known.data_images)
            warm_up(plan)
            self._prepared = {}  # one at a time: a GPU may not hold two
            training = Prepared(
                known.name,
                plan,
                layout_of(plan),
                images,
                self._networks(plan, lease, known.step_mb, another=True),
                known.plan_version,
                known.step_mb,
            )
            self._prepared = {lease.training_id: training}
        training.images = self._delivered(lease) or training.images
        if training.iteration != lease.iteration:
            after = training.after(lease.iteration)
            payload = self._main.call(lambda c: student.weights(c, lease.training_id, lease.iteration, after))
            if payload is None:
                return None
            training.take(lease.iteration, payload)
        return training

    def _delivered(self, lease: Lease) -> ImageSet | None:
        """The images that have come so far, if this lease's training is the one that they come for."""
        delivery = self._delivery
        return delivery.images if delivery is not None and delivery.training_id == lease.training_id else None

    def _submit(
        self, lease: Lease, payload: bytes, trail: bytes, measures: Measures
    ) -> tuple[Lease, Measures, Submission]:
        began = 0.0

        def send(home: Class) -> Submission:
            nonlocal began
            began = time.monotonic()  # of this try: how long the class was away says nothing about this machine's line
            return student.submit(home, lease.id, self.boot, measures, payload, trail)

        answer = self._upload.call(send)
        taken = time.monotonic() - began
        self._upload_seconds = 0.7 * self._upload_seconds + 0.3 * taken if self._upload_seconds else taken
        self._open.discard(lease.id)
        return lease, measures, answer

    def _settled(
        self, pending: "Future[tuple[Lease, Measures, Submission]] | None", report: Callable[[Tally], None]
    ) -> None:
        """Wait for an upload's answer and book it."""
        if pending is None:
            return
        lease, measures, answer = pending.result()
        tally = self.tally
        tally.seconds += measures.seconds
        tally.leases += 1
        if answer.verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE):
            tally.units += len(first_of(lease.units, measures.images))
            tally.images += measures.images
        else:
            tally.lost += 1
        log.info(
            "it %d, unit %s: %s%s, %.1f s for %d images, %s images so far",
            lease.iteration,
            ", ".join(str(u.ordinal) for u in lease.units),
            answer.verdict,
            f" ({answer.reason})" if answer.reason else "",
            measures.seconds,
            measures.images,
            f"{tally.images:,}",
        )
        report(tally)

    def _release(self, lease_id: int, reason: str, spoiled: bool = False) -> None:
        self._main.call(lambda c: student.release(c, lease_id, self.boot, reason, spoiled))
        self._open.discard(lease_id)

    def _give_back(self, reason: str) -> None:
        for lease_id in tuple(self._open):
            try:
                self._release(lease_id, reason)
            except StoreError as exc:  # the database is away: the lease runs out by itself
                log.warning("Could not give lease %d back: %s", lease_id, exc)

    def _pause(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not self.should_stop() and time.monotonic() < ends:
            self._ended.wait(0.2)

    def _beat(self) -> None:
        """Renew the leases on an own connection, so that neither a long unit nor a slow upload is in the way.

        A lease whose computing has stopped moving is given back: a machine that is alive but stuck must not keep it.
        """
        link, given_back = student.linked(self._main.url, self._ended.is_set), None
        try:
            while not self._ended.wait(HEARTBEAT):
                if (stuck := self._watchdog.stuck()) is None:
                    given_back = None
                elif given_back is None:
                    log.warning("No batch was finished for %.0f s: giving the lease back.", stuck.seconds)
                    reason = f"no batch was finished for {stuck.seconds:.0f} s"
                    link.call(lambda c, s=stuck, r=reason: student.release(c, s.lease, self.boot, r))
                    self._lost.add(stuck.lease)
                    given_back = time.monotonic()
                elif time.monotonic() - given_back > HUNG:
                    log.error("%s hangs, and nothing but the end of this process ends that.", self.device)
                    self._on_hang()
                held = set(self._open)  # before asking: one that is claimed meanwhile isn't lost
                alive = link.call(lambda c: student.heartbeat(c, self.worker, self.boot))
                self._lost = (self._lost | held.difference(alive)) & self._open
        except StoreError as exc:
            log.warning("Heartbeat ended: %s", exc)
        finally:
            link.close()
