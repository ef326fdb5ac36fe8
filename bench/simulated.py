"""Machines that really claim, beat and submit, but where others compute they only wait."""

import random
import threading
import time
from dataclasses import dataclass
from uuid import uuid4

from psycopg import Connection

from gan_core.store import student
from gan_core.store.engine import connect, wait_for_notice
from gan_core.units import Lease, Measures
from gan_core.worker.shift import HEARTBEAT, TICK

JITTER = 0.2  # a unit takes up to this share longer or shorter than the last one
STALL_EVERY, STALL = 8, 5.0  # a machine that stalls takes so many times its usual time for each eighth lease


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
        speed: images a second.
        stalls: whether it stalls now and then.
        payload: what it hands in for every lease.
        stop: ends it, wherever it is.
    """

    def __init__(
        self, url: str, name: str, speed: float, *, stalls: bool, payload: bytes, stop: threading.Event
    ) -> None:
        self.name, self.work = name, list[Work]()
        self._url, self._speed, self._stalls, self._payload, self._stop = url, speed, stalls, payload, stop
        self._random, self._boot = random.Random(name), uuid4()

    def run(self) -> None:
        with connect(self._url) as connection:
            connection.execute("LISTEN classgan_work")
            worker = student.register(connection, self.name, self._boot, "cpu", {})
            while not self._stop.is_set():
                lease = student.claim(connection, worker, self._boot)
                if lease is None:
                    wait_for_notice(connection, TICK)
                elif self._compute(connection, worker, lease):
                    seconds = self.work[-1].ended - self.work[-1].began
                    student.submit(connection, lease.id, self._boot, _measures(lease, seconds), self._payload)

    def _compute(self, connection: Connection, worker: int, lease: Lease) -> bool:
        """Wait for as long as it would take. False if it was abandoned, since the lease was lost or the class is over."""
        began = time.monotonic()
        ends, beat, held = began + self._seconds(lease), began + HEARTBEAT, True
        while held and (now := time.monotonic()) < ends and not self._stop.wait(min(ends, beat) - now):
            if min(ends, beat) == beat:
                held, beat = lease.id in student.heartbeat(connection, worker, self._boot), beat + HEARTBEAT
        ended = min(time.monotonic(), ends)
        self.work.append(Work(lease.iteration, lease.images * (ended - began) / (ends - began), began, ended))
        return held and ended == ends

    def _seconds(self, lease: Lease) -> float:
        seconds = sum(u.images / self._speed * self._random.uniform(1 - JITTER, 1 + JITTER) for u in lease.units)
        return seconds * (STALL if self._stalls and len(self.work) % STALL_EVERY == STALL_EVERY - 1 else 1)


def _measures(lease: Lease, seconds: float) -> Measures:
    return Measures(images=lease.images, seconds=seconds, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5)
