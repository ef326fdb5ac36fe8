"""Heartbeats of many machines are written together; each machine reads its own answer."""

import asyncio
from uuid import uuid4

import pytest

from deployments.server.door import heartbeats
from deployments.server.door.heartbeats import EACH, LONGEST, Heartbeats
from deployments.server.gate.runs import Refused
from gan_core.errors import StoreError, StoreUnreachable

BOOT = uuid4()


class Database:
    """Answers with the worker's number, refuses that of worker 13, or is away."""

    def __init__(self, is_away: bool = False) -> None:
        self.asked: list[list[tuple[str, int]]] = []
        self.is_away = is_away

    async def renew(self, gathered):
        self.asked.append([(login, worker) for login, worker, _ in gathered])
        if self.is_away:
            raise StoreUnreachable("away")
        return [StoreError("not yours") if worker == 13 else [worker] for _, worker, _ in gathered]


async def all_of(class_: Heartbeats, *machines: tuple[str, int]) -> list[object]:
    return await asyncio.gather(*(class_.take(*machine, BOOT) for machine in machines), return_exceptions=True)


def test_those_of_one_moment_are_one_question_and_what_is_refused_is_one_machines():
    class_ = Heartbeats(database := Database())
    machines = [(f"student-{n}", n) for n in range(100)]
    answers = asyncio.run(all_of(class_, *machines))
    assert database.asked == [machines]
    assert str(answers.pop(13)) == "not yours"
    assert answers == [[n] for n in range(100) if n != 13]


def test_those_that_come_meanwhile_are_the_next_question():
    async def two() -> None:
        first = asyncio.create_task(class_.take("ada", 1, BOOT))
        while not database.asked:
            await asyncio.sleep(0)
        assert (await class_.take("grace", 2, BOOT), await first) == ([2], [1])

    class_ = Heartbeats(database := Database())
    asyncio.run(two())
    assert database.asked == [[("ada", 1)], [("grace", 2)]]


def test_one_that_is_sent_again_before_its_answer_is_the_same():
    class_ = Heartbeats(database := Database())
    assert asyncio.run(all_of(class_, ("ada", 1), ("ada", 1))) == [[1], [1]]
    assert database.asked == [[("ada", 1)]]


def test_a_larger_class_is_gathered_for_longer_and_machines_that_have_gone_no_longer_count(monkeypatch):
    class_ = Heartbeats(Database())
    now = 1_000.0
    monkeypatch.setattr(heartbeats.time, "monotonic", lambda: now)
    class_._seen = dict.fromkeys(range(3), now)
    assert class_._hold() == pytest.approx(0.03)
    class_._seen = dict.fromkeys(range(500), now)
    assert class_._hold() == LONGEST
    now += heartbeats.KNOWN + 1
    assert class_._hold() == 0


def test_a_student_who_sends_too_many_is_refused_and_the_others_are_not():
    class_ = Heartbeats(Database())
    answers = asyncio.run(all_of(class_, *(("mallory", 100 + n) for n in range(EACH + 1)), ("ada", 1)))
    assert answers[:EACH] == [[100 + n] for n in range(EACH)]
    assert isinstance(answers[EACH], Refused)
    assert answers[EACH].status == 429
    assert answers[-1] == [1]


def test_nobody_waits_for_ever_for_a_database_that_is_away():
    class_ = Heartbeats(database := Database(is_away=True))
    assert {type(answer) for answer in asyncio.run(all_of(class_, ("ada", 1), ("grace", 2)))} == {StoreUnreachable}
    database.is_away = False
    assert asyncio.run(all_of(class_, ("ada", 1))) == [[1]]
