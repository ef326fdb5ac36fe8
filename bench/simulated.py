"""Machines that really claim, beat and submit, but where others compute they only wait."""

import random
import threading
import time
from dataclasses import dataclass
from uuid import uuid4

from psycopg import Connection

from gan_core.networks.inputs import sizes_of
from gan_core.plan import Plan
from gan_core.store import student
from gan_core.store.engine import connect, wait_for_notice
from gan_core.units import Lease, Measures
from gan_core.worker.shift import HEARTBEAT, TICK

JITTER = 0.2  # a unit takes up to this share longer or shorter than the last one
FROZEN, FROZEN_EVERY = 10.0, 120.0  # seconds: a machine that freezes now and then


@dataclass(frozen=True, slots=True)
class Work:
    """One lease, whatever became of it."""

    iteration: int
    images: float  # that were computed: a part of the lease's if it was abandoned
    began: float  # on the monotonic clock
    ended: float


class SimulatedMachine:
    """One student's machine.

    Args:
        url: of the database, with a student's login.
        plan: of the training.
        speed: images a second.
        freezes: whether it stands still for FROZEN seconds once in FROZEN_EVERY.
        payload: what it hands in for every lease.
        stop: ends it, wherever it is.
    """

    def __init__(
        self, url: str, name: str, plan: Plan, speed: float, *, freezes: bool, payload: bytes, stop: threading.Event
    ) -> None:
        self.name, self.work = name, list[Work]()
        self._url, self._plan, self._speed, self._payload, self._stop = url, plan, speed, payload, stop
        self._random, self._boot = random.Random(name), uuid4()
        self._freezes, self._phase = freezes, self._random.uniform(0, FROZEN_EVERY)

    def run(self) -> None:
        with connect(self._url) as connection:
            connection.execute("LISTEN classgan_work")
            worker = student.register(connection, self.name, self._boot, "cpu", {})
            while not self._stop.is_set():
                lease = student.claim(connection, worker, self._boot)
                if lease is None:
                    wait_for_notice(connection, TICK)
                elif images := self._compute(connection, worker, lease):
                    seconds = self.work[-1].ended - self.work[-1].began
                    student.submit(connection, lease.id, self._boot, _measures(images, seconds), self._payload)

    def _compute(self, connection: Connection, worker: int, lease: Lease) -> int:
        """Wait for as long as it would take. Returns the images, fewer than the lease's if its round closes before; none if it
        was abandoned, since the lease was lost or the class is over.
        """
        began = time.monotonic()
        images, ends = self._foreseen(lease, began)
        beat, held = began + HEARTBEAT, True
        while held and (now := time.monotonic()) < ends and not self._stop.wait(min(ends, beat) - now):
            if min(ends, beat) == beat:
                beat += HEARTBEAT
                if not self._frozen_for(time.monotonic()):
                    held = lease.id in student.heartbeat(connection, worker, self._boot)
        ended = min(time.monotonic(), ends)
        self.work.append(Work(lease.iteration, images * (ended - began) / (ends - began), began, ended))
        return images if held and ended == ends else 0

    def _foreseen(self, lease: Lease, now: float) -> tuple[int, float]:
        """Images that are computed, batch by batch, until the lease's end or its round's; and when that is."""
        stop = float("inf") if lease.seconds_left is None else now + lease.seconds_left
        images = 0
        for unit in lease.units:
            each = self._random.uniform(1 - JITTER, 1 + JITTER) / self._speed
            for size in sizes_of(self._plan, unit.images):
                if images and now + size * each > stop:
                    return images, now
                images += size
                now = self._after(now, size * each)
        return images, now

    def _after(self, now: float, seconds: float) -> float:
        """When so many seconds of work are done, from now on: the machine may freeze meanwhile."""
        if not self._freezes:
            return now + seconds
        now += self._frozen_for(now)
        until = FROZEN_EVERY - FROZEN - (now + self._phase) % FROZEN_EVERY  # at the end of each two minutes
        return now + seconds if seconds <= until else now + seconds + FROZEN

    def _frozen_for(self, now: float) -> float:
        """Seconds that it stands still from now on."""
        at = (now + self._phase) % FROZEN_EVERY
        return FROZEN_EVERY - at if self._freezes and at > FROZEN_EVERY - FROZEN else 0.0


def _measures(images: int, seconds: float) -> Measures:
    return Measures(images=images, seconds=seconds, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5)
