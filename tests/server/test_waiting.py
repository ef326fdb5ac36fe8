"""Idle workers' polls: one look at Prefect for all, each shift for one of them, and an answer as soon as there is a shift."""

import asyncio
import json
import time

import pytest

from deployments.server.gate import waiting
from deployments.server.gate.runs import Inner, Refused
from deployments.server.gate.waiting import Waiting, while_there


class Pool:
    """Like Prefect: it tells the oldest scheduled runs, to everybody who asks."""

    def __init__(self) -> None:
        self.scheduled: list[str] = []
        self.looks, self.status = 0, 200

    async def __call__(self, scope, receive, send) -> None:
        self.looks += 1
        limit = json.loads((await receive())["body"])["limit"]
        told = [{"flow_run": {"id": run}} for run in self.scheduled[:limit]]
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(told).encode()})


@pytest.fixture
def pool(monkeypatch) -> Pool:
    monkeypatch.setattr(waiting, "LOOK", 0.02)
    monkeypatch.setattr("deployments.server.gate.runs.PAUSES", (0.0,))
    return Pool()


def given(answers: list[list[dict]]) -> list[str]:
    return [run["flow_run"]["id"] for answer in answers for run in answer]


def test_a_hundred_idle_workers_cost_prefect_no_more_than_one_and_each_shift_goes_to_one_of_them(pool):
    async def lesson() -> list[list[dict]]:
        open_polls = Waiting(Inner(pool, "a:b"))
        polls = [asyncio.create_task(open_polls.shift_for(f"student-{n}", 20)) for n in range(100)]
        while pool.looks < 5:
            await asyncio.sleep(0.005)
        assert not any(poll.done() for poll in polls)
        pool.scheduled = [f"run-{n}" for n in range(100)]
        return await asyncio.gather(*polls)

    answers = asyncio.run(lesson())
    assert sorted(given(answers)) == sorted(f"run-{n}" for n in range(100))
    assert pool.looks < 10


def test_who_does_not_wait_is_told_how_it_is_now_and_who_waits_is_told_in_the_end(pool):
    async def ask(hold: float) -> tuple[list[dict], float]:
        started = time.monotonic()
        return await Waiting(Inner(pool, "a:b")).shift_for("ada", hold), time.monotonic() - started

    assert asyncio.run(ask(0))[0] == []
    answer, seconds = asyncio.run(ask(0.3))
    assert answer == []
    assert seconds >= 0.3
    pool.scheduled = ["run"]
    assert given([asyncio.run(ask(20))[0]]) == ["run"]


def test_a_shift_that_nobody_took_is_offered_again_a_little_later(pool, monkeypatch):
    monkeypatch.setattr(waiting, "OFFERED", 60.0)
    pool.scheduled = ["run"]

    async def two() -> list[list[dict]]:
        open_polls = Waiting(Inner(pool, "a:b"))
        first, at_once = await open_polls.shift_for("ada", 20), await open_polls.shift_for("grace", 0)
        open_polls._offered.clear()  # the time is over in which ada could have taken it
        return [first, at_once, await open_polls.shift_for("grace", 20)]

    first, at_once, later = asyncio.run(two())
    assert (given([first]), at_once, given([later])) == (["run"], [], ["run"])


def test_who_asks_most_often_does_not_get_most(pool):
    async def ask() -> int:
        open_polls = Waiting(Inner(pool, "a:b"))
        greedy = [asyncio.create_task(open_polls.shift_for("mallory", 20)) for _ in range(16)]
        modest = [asyncio.create_task(open_polls.shift_for(name, 20)) for name in ("ada", "grace", "alan")]
        await asyncio.sleep(0)  # all of them wait now
        pool.scheduled = [f"run-{n}" for n in range(4)]
        await asyncio.gather(*modest)
        got = sum(poll.done() for poll in greedy)
        for poll in greedy:
            poll.cancel()
        return got

    assert asyncio.run(ask()) <= 1


def test_an_outage_is_told_to_all_who_wait_so_that_they_ask_again(pool):
    pool.status = 503

    async def ask() -> list:
        open_polls = Waiting(Inner(pool, "a:b"))
        return await asyncio.gather(*(open_polls.shift_for("ada", 20) for _ in range(3)), return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(ask())] == [Refused] * 3


def test_a_machine_that_vanished_is_offered_nothing(pool):
    """Its poll was the oldest: whoever came after it would wait for what nobody takes."""

    async def lesson() -> list:
        open_polls, left = Waiting(Inner(pool, "a:b")), asyncio.Event()

        async def receive() -> dict:
            await left.wait()
            return {"type": "http.disconnect"}

        ghost = asyncio.create_task(while_there(receive, open_polls.shift_for("ada", 20)))
        while not pool.looks:
            await asyncio.sleep(0.001)
        left.set()
        assert await ghost is None
        pool.scheduled = ["run"]
        return await open_polls.shift_for("grace", 20)

    assert given([asyncio.run(lesson())]) == ["run"]
