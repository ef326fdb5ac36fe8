"""Pushes to the Hugging Face Hub, on a thread of their own: nothing waits for them, and at most a few an hour are made."""

import logging
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gan_core.errors import HubBusy, HubError
from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator.checkpoints import Snapshot

log = logging.getLogger("classgan.hub")

SECRET = "huggingface-token"  # block of type Secret in Prefect, for machines where nobody logs in
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 900.0  # seconds, while the hub is busy or away
LAST_SECONDS = 60.0  # for the last generator, when the training is done


@dataclass(frozen=True, slots=True)
class _Offer:
    """What is to be pushed."""

    training: str
    training_id: int
    iteration: int
    repo: str
    gap: float  # seconds between two pushes
    files: Mapping[str, bytes]
    is_last: bool


class HubPushes:
    """The newest generator waits here for its turn; an older one that is still waiting is dropped for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: _Offer | None = None
        self._busy = self._closed = False
        self._refused = ""  # the repository that the hub said no to: not asked again
        self._thread: threading.Thread | None = None

    def offer(self, snapshot: "Snapshot", files: Mapping[str, bytes], is_last: bool) -> None:
        """Push these files when it is time. Returns at once."""
        plan = snapshot.plan
        if plan.hub_repo == self._refused:
            return
        gap = 3600 / plan.hub_pushes_per_hour
        with self._changed:
            self._waiting = _Offer(
                snapshot.name, snapshot.training_id, snapshot.iteration, plan.hub_repo, gap, files, is_last
            )
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._push_all, name="hub", daemon=True)
            self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait for what is still on its way, but no longer than this."""
        with self._changed:
            done = self._changed.wait_for(lambda: not (self._waiting or self._busy), seconds)
        if not done:
            log.warning(
                "The hub has not taken the last generator within %.0f s. It is in %s; push it with `classgan push`.",
                seconds,
                settings().outputs,
            )

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _push_all(self) -> None:
        allowed = rested = 0.0  # when the limit lets the next push through, and when the hub may be asked again
        pause = FIRST_PAUSE
        while (offer := self._next(allowed, rested)) is not None:
            began = time.monotonic()
            try:
                self._push(offer)
                allowed, pause = began + offer.gap, FIRST_PAUSE
            except HubBusy as exc:
                log.warning("Iteration %d was not pushed to %s: %s", offer.iteration, offer.repo, exc)
                rested, pause = time.monotonic() + pause, min(LONGEST_PAUSE, 2 * pause)
                with self._changed:
                    self._waiting = self._waiting or offer
            except Exception as exc:  # noqa: BLE001  whatever it is, the training goes on
                self._give_up(offer, str(exc) if isinstance(exc, HubError) else f"it failed ({type(exc).__name__})")
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _next(self, allowed: float, rested: float) -> _Offer | None:
        """The newest offer when it is time; None when this is over. No limit holds the last one back, only a rest."""
        with self._changed:
            while not self._closed:
                offer = self._waiting
                left = 0.0 if offer is None else (rested if offer.is_last else max(allowed, rested)) - time.monotonic()
                if offer is not None and left <= 0:
                    self._waiting, self._busy = None, True
                    return offer
                self._changed.wait(left if offer is not None else None)
        return None

    def _push(self, offer: _Offer) -> None:
        from gan_core.exports import hub

        pushed = hub.commit(offer.repo, offer.files, f"{offer.training}: iteration {offer.iteration:,}", token())
        log.info("Iteration %d is on the hub: %s", offer.iteration, pushed.url)

    def _give_up(self, offer: _Offer, why: str) -> None:
        """Say it once, in the log and in the training's history; the files stay where they are."""
        from gan_core.store.coordinator import events
        from gan_core.store.engine import Link
        from gan_core.units import EventKind

        self._refused = offer.repo
        text = (
            f"Nothing more is pushed to {offer.repo}: {why} The training goes on; later: classgan push {offer.training}"
        )
        log.warning("%s", text)
        with Link(settings().database_url) as link:
            link.call(lambda c: events.note(c, offer.training_id, offer.iteration, EventKind.HUB, text))


@contextmanager
def hub_pushes() -> Generator[HubPushes]:
    """While this holds, generators can be offered. After a training's end the last one gets LAST_SECONDS."""
    hub = HubPushes()
    try:
        yield hub
        hub.finish(LAST_SECONDS)
    finally:
        hub.close()


def token() -> str | None:
    """The token from huggingface_hub's usual places; else from the Secret block that Prefect may have; else None."""
    from huggingface_hub import get_token
    from prefect.blocks.system import Secret

    if found := get_token():
        return found
    try:
        return str(cast(Secret, Secret.load(SECRET)).get())
    except Exception:  # noqa: BLE001  there is no such block, or Prefect is away: without a token the hub says what to do
        return None
