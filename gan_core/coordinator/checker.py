"""Checks: compares contributions of two machines to the same units, and recomputes some beside the training; an invalid one
loses its credit.
"""

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

from gan_core.data.images import ImageSet, images_of, require_same_data
from gan_core.errors import PayloadError, StoreError, StoreUnreachable
from gan_core.networks.gradients import Beat
from gan_core.networks.models import Networks, layout_of
from gan_core.networks.recomputation import check, exact
from gan_core.networks.self_test import fitting
from gan_core.plan import Plan, checked_plan
from gan_core.policies.announcements import announced
from gan_core.policies.codecs import decode
from gan_core.policies.trails import Answer, compare
from gan_core.policies.validation import Finding, figures_of
from gan_core.store.coordinator import checks
from gan_core.store.engine import Link

log = logging.getLogger("classgan.checker")

RECOMPUTED = 1 / 16  # share of the pairs that agree: of those nobody else tells whether both lie
COMPARING = 5.0  # seconds between looks for pairs while something is recomputed, which may take minutes


class Interrupted(Exception):
    """Raised by a beat: the check at hand is given up, and made later by whoever looks next."""


class Checker:
    """Checks one training's contributions, one after the other; which ones, the database chose when they came in.

    Args:
        url: of the database, as the instructor.
        images: the training's, where they are open already.
        device: to recompute on, if it computes the right numbers.
        cache, data: as a shift's; needed without images.
        on_batch: called after each batch; may raise Interrupted.
        should_stop: whether an outage of the database ends the waiting.
    """

    def __init__(
        self,
        url: str,
        training_id: int,
        *,
        images: ImageSet | None = None,
        device: str = "cpu",
        cache: Path = Path(),
        data: Path = Path(),
        on_batch: Beat = lambda: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.link = Link(url, should_stop=should_stop)
        self._on_batch, self._compared = on_batch, 0.0
        self.training_id = training_id
        self._images, self._device, self._cache, self._data = images, device, cache, data
        self._random = random.SystemRandom()  # nobody knows which agreeing pairs are recomputed
        self._networks: tuple[Plan, Networks] | None = None

    def check_next(self) -> bool:
        """Check the contribution that waits longest, or compare two; False if none waits.

        Raises:
            Interrupted: by `on_batch`; nothing was recorded.
        """
        if self.compare_next():
            return True
        waiting = self.link.call(lambda c: checks.next_check(c, self.training_id))
        if waiting is None:
            return False
        started = time.monotonic()
        try:
            finding = self._find(waiting)
        except (Interrupted, StoreError):  # the latter by a comparison meanwhile
            raise
        except Exception as exc:  # noqa: BLE001  whatever it is, nobody is accused for it, and the others are checked
            log.warning("A contribution of %s can't be checked here and stays unchecked: %s", waiting.worker, exc)
            self.link.call(lambda c: checks.let_go(c, waiting.contribution_id))
            return True
        seconds = time.monotonic() - started
        try:
            self.link.call(
                lambda c: checks.record(
                    c, waiting.contribution_id, finding.valid, finding.reason, finding.figures, seconds
                )
            )
        except StoreUnreachable:
            raise
        except StoreError as exc:  # or this one would be tried for ever, and no other
            log.warning("The result of a check of %s can't be recorded and is dropped: %s", waiting.worker, exc)
            self.link.call(lambda c: checks.let_go(c, waiting.contribution_id))
        log.info(
            "Checked a contribution of %s to iteration %d in %.1f s: %s",
            waiting.worker,
            waiting.iteration,
            seconds,
            finding.reason or "valid",
        )
        return True

    def compare_next(self) -> bool:
        """Compare the pair that waits longest; False if none does. Takes no recomputation: what agrees is valid, what
        doesn't is recomputed like any other, and so is one pair in some that agree, since two students may have agreed
        on a lie.
        """
        pair = self.link.call(lambda c: checks.next_pair(c, self.training_id))
        if pair is None:
            return False
        started = time.monotonic()
        try:
            plan = checked_plan(pair.plan)
            layout = layout_of(plan)
            first, second = (
                Answer(decode(payload, layout, plan.codec), trail)
                for payload, trail in zip(pair.payloads, pair.trails, strict=True)
            )
            comparison = compare(plan, layout, pair.units, (first, second))
        except Exception as exc:  # noqa: BLE001  whatever a trail makes of it, both are recomputed, and the others compared
            log.info("Contributions of %s and %s can't be compared: %s", *pair.workers, exc)
            comparison = None
        if comparison is None or not comparison.agree or self._random.random() < RECOMPUTED:
            self.link.call(lambda c: checks.dispute(c, pair))
            return True
        seconds = (time.monotonic() - started) / 2
        for contribution, figures in zip(pair.contribution_ids, comparison.figures, strict=True):
            self.link.call(lambda c, n=contribution, f=figures: checks.record(c, n, True, "", figures_of(f), seconds))
        log.info("Contributions of %s and %s to iteration %d agree: valid.", *pair.workers, pair.iteration)
        return True

    def _find(self, waiting: checks.Waiting) -> Finding:
        plan = checked_plan(waiting.plan)
        layout = layout_of(plan)
        try:
            claimed = decode(waiting.payload, layout, plan.codec)
        except PayloadError as exc:  # what came late was never decoded before
            return Finding(False, f"its payload can't be read: {exc}")
        weights = announced(plan, layout, waiting.weights)
        networks, images = self._networks_for(plan), self._images_for(plan, waiting)
        return check(plan, networks, images, waiting.units, weights, claimed, self._beat)

    def _beat(self) -> None:
        self._on_batch()
        if time.monotonic() - self._compared > COMPARING:
            while self.compare_next():
                pass
            self._compared = time.monotonic()

    def close(self) -> None:
        self.link.close()

    def _networks_for(self, plan: Plan) -> Networks:
        if self._networks is None or self._networks[0] != plan:
            # Tested: a device that computes wrong numbers would accuse everybody else.
            _, (networks, *_) = fitting(exact(plan), self._device, {}, self._on_batch)
            self._networks = plan, networks
        return self._networks[1]

    def _images_for(self, plan: Plan, waiting: checks.Waiting) -> ImageSet:
        if self._images is None:
            self._images = images_of(plan, self._cache, self._data, waiting.data_fingerprint)
            require_same_data(self._images, waiting.data_fingerprint, waiting.data_images)
        return self._images
