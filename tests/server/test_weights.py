"""Weights that a whole class waits for: read from the database once, at once, and kept while somebody fetches them."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deployments.server.door import database as door_database
from deployments.server.door.database import Database
from deployments.server.door.weights import KEPT, WeightsCache
from gan_core.store import student
from gan_core.store.coordinator import trainings
from gan_core.store.logins import issue

SOON = 30.0  # seconds: a deadline for what nothing holds up, also on a busy computer


@pytest.fixture
def asked(database: str, connection: psycopg.Connection) -> Iterator[Database]:
    for login in ("ada", "grace", "mallory"):
        issue(connection, login)
    asked = Database(database)
    asked.open()
    yield asked
    asked.close()


@pytest.fixture
def kept(asked: Database, tmp_path: Path) -> WeightsCache:
    kept = WeightsCache(asked, tmp_path / "weights")
    kept.start()
    return kept


def training_of(connection: psycopg.Connection, plan: dict, name: str = "test") -> int:
    """A running one, with weights 0 that bear its name."""
    row = trainings.create(connection, name, plan)
    trainings.start(connection, row.id, "data", 5000, 100, f"weights of {name}".encode())
    return row.id


def test_weights_and_small_questions_dont_wait_for_what_a_class_hands_in(connection, tiny, asked, kept):
    """All places for hand-ins are held, and many more wait for one, also some of the very student who asks."""
    training = training_of(connection, tiny.model_dump(mode="json"))
    go_on, held = threading.Event(), threading.Semaphore(0)

    def hand_in(connection: psycopg.Connection) -> None:
        held.release()
        go_on.wait(10 * SOON)

    async def find() -> bytes:
        hand_ins = [
            asyncio.ensure_future(asked.ask(login, hand_in, is_large=True))
            for login in ("ada", "grace", "mallory")
            for _ in range(50)
        ]
        try:
            for _ in range(door_database.LARGE):
                assert await asyncio.to_thread(held.acquire, timeout=SOON)
            found = await asyncio.wait_for(kept.find("ada", training, 0), SOON)
            await asyncio.wait_for(asked.ask("ada", student.my_credit), SOON)
            assert not any(hand_in.done() for hand_in in hand_ins)
        finally:
            go_on.set()
            await asyncio.gather(*hand_ins)
        return kept.path(found.sha256).read_bytes()

    assert asyncio.run(find()) == b"weights of test"


def test_whoever_asks_for_one_number_after_the_other_keeps_nobody_waiting(connection, tiny, kept, monkeypatch):
    """Neither with the places for reading, nor with the newest version itself, which they ask for, too."""
    training = training_of(connection, tiny.model_dump(mode="json"))
    go_on, asked_for = threading.Event(), []
    real = student.weights

    def weights(connection: psycopg.Connection, training: int, iteration: int) -> bytes | None:
        asked_for.append(iteration)
        if iteration:
            go_on.wait(10 * SOON)
        return real(connection, training, iteration)

    monkeypatch.setattr(student, "weights", weights)

    async def find() -> None:
        tries = [
            asyncio.ensure_future(kept.find("mallory", training, number)) for number in (*range(1, 50), 0)
        ]  # in this order
        try:
            await asyncio.sleep(0)  # each has begun
            found = await asyncio.wait_for(kept.find("ada", training, 0), SOON)
            assert found is not None
            assert sum(number > 0 for number in asked_for) <= 1
        finally:
            go_on.set()
            answers = await asyncio.gather(*tries)
        assert answers == [None] * 49 + [found]

    asyncio.run(find())


def test_weights_that_come_a_moment_later_are_found_then(connection, tiny, kept):
    """That a version isn't there is never remembered: the next moment it may be."""
    training = training_of(connection, tiny.model_dump(mode="json"))

    async def find_twice() -> tuple[object, object]:
        before = await kept.find("ada", training, 1)
        connection.execute(
            "INSERT INTO classgan.weights (training_id, iteration, payload) VALUES (%s, 1, 'next')", (training,)
        )
        return before, await kept.find("ada", training, 1)

    before, after = asyncio.run(find_twice())
    assert before is None
    assert after is not None


def test_of_a_term_of_trainings_a_few_versions_are_kept_and_always_that_of_the_class_at_work(
    connection, tiny, kept, tmp_path
):
    """Somebody asks for the last weights of each, again and again, while a class computes with one."""
    plan = tiny.model_dump(mode="json")
    over = [training_of(connection, plan, f"training {number}") for number in range(39)]
    connection.execute("UPDATE classgan.trainings SET state = 'cancelled'")
    at_work = training_of(connection, plan, "at work")

    def files() -> list[bytes]:
        return [path.read_bytes() for path in (tmp_path / "weights").iterdir()]

    async def cycle() -> None:
        await kept.find("ada", at_work, 0)
        for training in over:
            assert await kept.find("mallory", training, 0) is not None
            assert b"weights of at work" in files()
        await kept.find("mallory", over[0], 0)

    asyncio.run(cycle())
    newest = [f"weights of training {number}".encode() for number in (0, *range(39 - KEPT + 1, 39))]
    assert sorted(files()) == sorted([b"weights of at work", *newest])
