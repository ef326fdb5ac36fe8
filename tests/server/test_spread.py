"""Many ask in the same moment, as after a restart of the class: whom Prefect refuses, the gate asks for again."""

import asyncio
import json

import pytest

from deployments.server.gate import requests, runs
from deployments.server.gate.frames import StudentSocket
from deployments.server.gate.logins import Person
from deployments.server.gate.requests import StudentApi
from deployments.server.gate.runs import Inner, Shifts

HEARTBEAT = "/work_pools/students/workers/heartbeat"


class Busy:
    """Like Prefect while its database is busy: of those who write, every fifth is refused, or everybody."""

    def __init__(self) -> None:
        self.refuses_all, self.asked = False, 0

    broken = False

    async def __call__(self, scope, receive, send) -> None:
        self.asked += 1
        refused = scope["method"] != "GET" and (self.refuses_all or self.asked % 5 == 0)
        await asyncio.sleep(0.002)
        status = 503 if refused else 500 if self.broken else 200
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": json.dumps({"status": status}).encode()})


@pytest.mark.parametrize("count", [30, 100])
def test_of_many_heartbeats_in_the_same_moment_none_is_refused(monkeypatch, count):
    monkeypatch.setattr(runs, "PAUSES", (0.01,) * 5)
    app = Busy()

    async def beat_at_once() -> list[int]:
        inner = Inner(app, "a:b")
        answers = await asyncio.gather(*(inner.call("POST", HEARTBEAT, {"name": str(n)}) for n in range(count)))
        return [answer.status_code for answer in answers]

    assert asyncio.run(beat_at_once()) == [200] * count
    assert app.asked < 2 * count


def test_who_is_refused_again_and_again_is_told_so(monkeypatch):
    monkeypatch.setattr(runs, "PAUSES", (0.0,) * 3)
    app = Busy()

    async def ask() -> tuple[int, int]:
        app.refuses_all = True
        inner = Inner(app, "a:b")
        return (await inner.call("GET", "/health")).status_code, (await inner.call("POST", HEARTBEAT)).status_code

    assert asyncio.run(ask()) == (200, 503)
    assert app.asked == 1 + 3


def test_workers_that_say_hello_in_the_same_moment_are_let_in_one_after_the_other(monkeypatch):
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("deployments.server.gate.frames.asyncio.sleep", note)

    async def hello() -> None:
        for n in range(30):
            person = Person(login=f"s{n}", secret_hash="")
            path = "/api/work_pools/students/workers/connect"
            socket = StudentSocket(person, path, None, list)  # ty: ignore[invalid-argument-type]
            frame = {"type": "worker.hello.v1", "payload": {"worker_name": f"s{n}", "heartbeat_interval_seconds": 10}}
            assert await socket.frame(json.dumps(frame)) is not None

    asyncio.run(hello())
    assert len(waits) == 30
    assert max(waits) - min(waits) > 0.3


def test_what_is_the_same_for_all_is_asked_once_and_again_after_a_refusal(monkeypatch):
    """A class that starts together reads the same pool, deployment and flow hundreds of times."""
    app = Busy()
    monkeypatch.setattr(runs, "PAUSES", (0.0,))
    monkeypatch.setattr(requests, "SHARED", 60.0)

    async def ask() -> list[int]:
        inner = Inner(app, "a:b")
        api = StudentApi(inner, Shifts(inner), list)

        async def pool() -> int:
            return (await api.answer(Person("ada", ""), "GET", "/api/work_pools/students", [], b"")).status

        assert set(await asyncio.gather(*(pool() for _ in range(50)))) == {200}
        assert app.asked == 1
        monkeypatch.setattr(requests, "SHARED", -1.0)  # its time is over
        assert await pool() == 200
        assert app.asked == 2
        monkeypatch.setattr(Busy, "broken", True)
        first = await pool()
        monkeypatch.setattr(Busy, "broken", False)
        return [first, await pool()]

    assert asyncio.run(ask()) == [500, 200]
