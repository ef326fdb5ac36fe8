"""Fetches a training's images to a student's machine, which computes with the first shard while the others come."""

import logging
import threading
from pathlib import Path

from gan_core.data.decoding import BEFORE, Reading
from gan_core.data.image_cache import Cached
from gan_core.data.images import ImageSet, find_source, joined, prepared_part, remedy_for
from gan_core.errors import DataError
from gan_core.plan import checked_plan
from gan_core.store.student import Assignment
from gan_core.units import counted

log = logging.getLogger("classgan.delivery")

PAUSE = 10.0  # seconds before another try; doubles to LONGEST_PAUSE
LONGEST_PAUSE = 300.0


class _Closed(Exception):
    """Nobody waits for these images any more."""


class Delivery:
    """Fetches and prepares a training's shards one after the other, on a thread of its own. Close it when done.

    A broken connection is waited for; what was fetched is kept, also beyond this process.
    """

    def __init__(self, training_id: int, training: Assignment, cache: Path, base: Path) -> None:
        self.training_id, self._training, self._cache, self._base = training_id, training, cache, base
        self.images: ImageSet | None = None  # the shards that are here; replaced by a larger set with each one
        self._closed, self._moved = threading.Event(), threading.Condition()
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> int:
        """Images that are here, from the first one on."""
        return 0 if self.images is None else len(self.images)

    @property
    def is_complete(self) -> bool:
        return self.ready == self._training.data_images

    def wait(self, seconds: float, more_than: int = 0) -> bool:
        """Whether more images than that are here, after waiting no longer than this."""
        with self._moved:
            return self._moved.wait_for(lambda: self.ready > more_than, seconds)

    def close(self) -> None:
        """Ends at the next word about progress."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        parts: list[Cached] = []
        pause = PAUSE
        while not self._closed.is_set() and not self.is_complete:
            try:
                self._take_next(parts)
                pause = PAUSE
            except _Closed:
                return
            except Exception as exc:  # noqa: BLE001  whatever it is: without this thread the machine would wait for ever
                log.warning("%s Trying again in %.0f s.", exc, pause)
                self._closed.wait(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)

    def _take_next(self, parts: list[Cached]) -> None:
        """Prepare one shard more.

        Raises:
            DataError: it can't be fetched, or is other data than the training's.
        """
        plan, expected, number = checked_plan(self._training.plan), self._training.shards, len(parts)
        data = self._training.data_source or plan.data
        if not parts:
            log.info("Fetching the images of %r: %s.", self._training.name, data)
        source = find_source(data, Reading(plan.background), self._cache, self._base, self._progress)
        if len(source.parts) != len(expected):
            raise DataError(f"{data} has {counted(len(source.parts), 'file')} here, {len(expected)} in the training.")
        shape = plan.image_size, plan.image_size, plan.channels
        part = prepared_part(source, number, shape, self._cache, self._progress)
        if expected[number].fingerprint == part.before != part.fingerprint:  # version 0.1 began this training
            source = find_source(data, BEFORE, self._cache, self._base, self._progress)
            part = prepared_part(source, number, shape, self._cache, self._progress)
        if (len(part.pixels), part.fingerprint) != (expected[number].images, expected[number].fingerprint):
            raise DataError(
                f"File {number + 1} of {data} is other data here (fingerprint {part.fingerprint}, {len(part.pixels):,} images) than "
                f"in the training (fingerprint {expected[number].fingerprint}, {expected[number].images:,} images): {remedy_for(data)}.",
            )
        parts.append(part)
        with self._moved:
            self.images = joined(plan.data, source, parts)
            self._moved.notify_all()
        log.info("%d of %d files of %s are here: %d images.", len(parts), len(expected), data, self.ready)

    def _progress(self, done: int, total: int) -> None:
        if self._closed.is_set():
            raise _Closed
