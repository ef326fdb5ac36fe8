"""Students' machines that compute nothing, many in one process: `python -m bench.machines FOLDER BYTES`.

The first line of stdin lists their addresses, as JSON. Each further line is a verb, done by all machines at the same moment and
answered by one list, a row a machine: `join` registers, claims and fetches the weights; `round` hands in what was claimed, then
claims and fetches what comes next.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit
from uuid import uuid4

from bench.children import say
from gan_core.errors import StoreUnreachable
from gan_core.store import student
from gan_core.store.engine import Reconnecting
from gan_core.store.student import Class
from gan_core.units import Lease, Measures

MEASURES = Measures(images=16, seconds=1.0, g_loss=1.0, d_loss=1.0, d_real_accuracy=0.5, d_fake_accuracy=0.5)
BEAT = 5.0  # seconds between heartbeats, as a shift makes them


class Counting(Reconnecting[Class]):
    """Counts the requests that were not served and had to be made again."""

    refused = 0

    def pause(self, seconds: float) -> None:
        self.refused += 1
        super().pause(seconds)


class Machine:
    """One, with the connections that a shift has.

    Args:
        payload: what it hands in each time: a file.
    """

    def __init__(self, url: str, payload: Path) -> None:
        self._payload, self._boot = payload, uuid4()
        self._name = urlsplit(url).username or ""
        self._main, self._upload, self._heart = (Counting(url, student.reach) for _ in range(3))
        self._lease: Lease | None = None
        self._training = 0

    def join(self) -> dict[str, float]:
        self._worker = self._main.call(lambda c: student.register(c, self._name, self._boot, "cpu", {}))
        threading.Thread(target=self._beat, daemon=True).start()
        return self._next(time.monotonic())

    def round(self) -> dict[str, float]:
        began, lease = time.monotonic(), self._lease
        assert lease is not None
        payload = self._payload.read_bytes()
        answer = self._upload.call(lambda c: student.submit(c, lease.id, self._boot, MEASURES, payload, b"a trail"))
        assert answer.verdict == "accepted", answer.reason
        return {"submit": time.monotonic() - began, **self._next(began)}

    def _next(self, began: float) -> dict[str, float]:
        """Claim until there is something, then fetch its weights."""
        while True:
            asked = time.monotonic()
            if lease := self._main.call(lambda c: student.claim(c, self._worker, self._boot)):
                break
            self._main.call(lambda c: student.wait_for_work(c, 1.0))
        claimed = time.monotonic()
        weights = self._main.call(lambda c: student.weights(c, lease.training_id, lease.iteration))
        assert weights is not None
        self._lease, ended = lease, time.monotonic()
        links = self._main, self._upload, self._heart
        refused = sum(link.refused for link in links)
        for link in links:
            link.refused = 0
        return {"claim": claimed - asked, "weights": ended - claimed, "all": ended - began, "refused": refused}

    def _beat(self) -> None:
        time.sleep(random.uniform(0, BEAT))
        while True:
            try:
                self._heart.call(lambda c: student.heartbeat(c, self._worker, self._boot))
            except StoreUnreachable:
                return
            time.sleep(BEAT)


VERBS: Mapping[str, Callable[[Machine], dict[str, float]]] = MappingProxyType(
    {"join": Machine.join, "round": Machine.round}
)


def main(folder: str) -> None:
    urls = json.loads(sys.stdin.readline())
    machines = [Machine(url, Path(folder) / f"{urlsplit(url).username}.payload") for url in urls]
    with ThreadPoolExecutor(len(machines)) as pool:
        say("ready")
        for line in sys.stdin:
            say(list(pool.map(VERBS[line.strip()], machines)))


if __name__ == "__main__":
    main(*sys.argv[1:])
