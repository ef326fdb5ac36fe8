"""How long Prefect's client pauses while the class server is away, and what its services still say."""

import asyncio
import logging

import httpx
import pytest
from prefect.client import base
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, PREFECT_CLIENT_RETRY_JITTER_FACTOR, temporary_settings
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from deployments.prefect_settings import CLIENT
from deployments.student import patience


def test_prefects_client_asks_again_at_least_every_half_minute(monkeypatch):
    """It doubles its pauses: after an outage of ten minutes it would stay away for as long again."""
    monkeypatch.setattr(base, "clamped_poisson_interval", patience._short(base.clamped_poisson_interval))
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(base.anyio, "sleep", pause)

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("the class server is away")

    async def ask() -> None:
        async with base.PrefectHttpxAsyncClient(transport=httpx.MockTransport(away), base_url="http://class") as client:
            await client.get("/")

    jitter = float(CLIENT["PREFECT_CLIENT_RETRY_JITTER_FACTOR"])
    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 100, PREFECT_CLIENT_RETRY_JITTER_FACTOR: jitter}),
        pytest.raises(httpx.ReadError),
    ):
        asyncio.run(ask())
    assert len(pauses) == 100
    assert max(pauses) <= 2 * patience.LONGEST_PAUSE == 30
    assert pauses[0] <= 4  # the first ones are as short as ever


def test_a_broken_connection_is_left_to_the_worker_to_tell_and_everything_else_is_told():
    def told(message: str, *arguments: object, error: BaseException | None = None) -> bool:
        seen = (type(error), error, None) if error else None
        return patience._tells_something_else(logging.LogRecord("x", 30, "", 0, message, arguments, seen))

    assert not told("The %s websocket failed with an exception.", "watcher", error=httpx.ConnectError("refused"))
    assert not told("%s failed to connect. Reason: %s", "watcher", ConnectionRefusedError())
    assert not told("The %s websocket closed. Switching to polling mode until it reconnects.", "watcher")
    assert not told("keepalive ping failed", error=AssertionError())  # websockets, if the server dies in that moment
    assert ClientProtocol(parse_uri("ws://class")).logger.name in patience.TALKATIVE
    assert not told("%s reconnected to the events stream and stopped polling.", "watcher")
    try:
        raise TimeoutError
    except TimeoutError:
        assert not told("Service %r failed to process item %r", "EventsWorker", "event")
    assert told("Service %r failed to process item %r", "EventsWorker", "event")
    assert told("Suspension polling task failed.", error=ValueError("something else"))


def test_a_watcher_of_a_run_outlives_an_outage_but_no_refusal():
    def answered(status: int) -> httpx.HTTPStatusError:
        response = httpx.Response(status, request=httpx.Request("GET", "http://class"))
        return httpx.HTTPStatusError("", request=response.request, response=response)

    async def once(workload):
        await workload()

    async def failing(error: Exception) -> None:
        async def look() -> None:
            raise error

        await patience._enduring(once)(look)

    asyncio.run(failing(httpx.ConnectError("refused")))
    asyncio.run(failing(answered(503)))
    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(failing(answered(401)))
