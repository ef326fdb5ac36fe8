"""What a student's machine does while its class server is away: asks again in short pauses, and leaves the words to the worker.

Prefect's client doubles its pauses without end, its watchers for a cancelled run give up for good after three tries, and each
of its services, and its websockets, tell on their own, with tracebacks, what the worker says in one sentence.
"""

import logging
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import httpx
import prefect.client.base
import websockets.exceptions
from prefect._internal import _observation_delivery

LONGEST_PAUSE = 15.0  # seconds between two tries, on average; with Prefect's jitter at most twice that
TRIES = 240  # of a shift that wants to report its end: an hour, as long as a shift
AWAY = (OSError, httpx.TransportError, websockets.exceptions.WebSocketException)  # what an absent server looks like
TALKATIVE = (
    "prefect.FlowRunCancellingObserver",
    "prefect.FlowRunSuspendingObserver",
    "prefect.events.clients",
    "prefect._internal.concurrency",
    "websockets.client",  # a ping that finds its connection broken
)


def be_patient() -> None:
    """From now on, in this process."""
    prefect.client.base.clamped_poisson_interval = _short(prefect.client.base.clamped_poisson_interval)  # ty: ignore[invalid-assignment]
    _observation_delivery.critical_service_loop = _enduring(_observation_delivery.critical_service_loop)  # ty: ignore[invalid-assignment]
    for name in TALKATIVE:
        logging.getLogger(name).addFilter(_tells_something_else)
    logging.raiseExceptions = False  # else each batch of log lines that the server doesn't take is told on stderr


def _short(interval: Callable[..., float]) -> Callable[..., float]:
    @wraps(interval)
    def short(average: float, *clamping: float) -> float:
        return interval(min(average, LONGEST_PAUSE), *clamping)

    return short


def _enduring(loop: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(loop)
    def enduring(workload: Callable[[], Awaitable[Any]], *options: Any, **more: Any) -> Awaitable[None]:
        async def look() -> None:
            try:
                await workload()
            except httpx.TransportError:
                pass
            except httpx.HTTPStatusError as exc:
                if exc.response.status_code < 500:
                    raise

        return loop(look, *options, **more)

    return enduring


def _tells_something_else(record: logging.LogRecord) -> bool:
    """Whether a record is about more than a connection that broke, doesn't come about, or is there again."""
    told = [sys.exc_info()[1], *(record.exc_info or ())[1:2], *(record.args if isinstance(record.args, tuple) else ())]
    of_the_connection = any(
        words in str(record.msg)
        for words in ("websocket closed", "reconnected to the events stream", "keepalive ping failed")
    )
    return not (of_the_connection or any(isinstance(it, AWAY) for it in told))
