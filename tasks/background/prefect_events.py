"""Send a training's progress to Prefect as events, so that an automation can tell when it stops moving."""

import time

from prefect.events import emit_event

MOVED, ENDED = "classgan.training.moved", "classgan.training.ended"
SECONDS = 10.0  # between two signs of moving: quick iterations need no event each
_said_at: dict[str, float] = {}


def moved(name: str) -> None:
    """An iteration was published. Costs microseconds: the event is sent from a thread of Prefect's own."""
    now = time.monotonic()
    if now - _said_at.get(name, -SECONDS) >= SECONDS:
        _said_at[name] = now
        _say(MOVED, name)


def ended(name: str) -> None:
    """It is done, or a person ended or paused it: nobody has to be told that it doesn't move."""
    _said_at.pop(name, None)
    _say(ENDED, name)


def _say(event: str, name: str) -> None:
    resource = {"prefect.resource.id": f"classgan.training.{name}", "prefect.resource.name": name}
    emit_event(event, resource=resource)
