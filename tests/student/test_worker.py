"""The student's worker while its class server is away; without a server: the questions are played."""

import asyncio
import logging

import httpx
import pytest

from deployments.student import worker as workers
from deployments.student.worker import StudentWorker


@pytest.fixture
def worker(monkeypatch) -> StudentWorker:
    monkeypatch.setattr(workers, "lock", lambda: None)
    monkeypatch.setattr(workers, "be_patient", lambda: None)
    monkeypatch.setattr(workers, "PATIENCE", 0.01)
    return StudentWorker(work_pool_name="students", name="ada")


def said(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "class server" in r.getMessage()]


def test_a_class_server_that_does_not_answer_is_said_at_once_and_once(worker, caplog):
    """Prefect's client asks again by itself, with ever longer pauses: an idle worker said nothing for three minutes."""
    back = asyncio.Event()

    async def silent() -> list:
        await back.wait()
        return []

    async def refused() -> list:
        raise httpx.ConnectError("All connection attempts failed")

    async def outage() -> None:
        asked = asyncio.ensure_future(worker._while_reachable(silent, []))
        async with asyncio.timeout(30):
            while not said(caplog):
                await asyncio.sleep(0.005)
        assert not asked.done()
        for _ in range(3):
            assert await worker._while_reachable(refused, ["nothing"]) == ["nothing"]
        back.set()
        assert await asked == []

    with caplog.at_level(logging.INFO):
        logging.getLogger("prefect").propagate = True
        asyncio.run(outage())
    assert said(caplog) == [
        "The class server does not answer (for 0 s). A running shift goes on, and this machine goes on by itself when the class is back.",
        "The class server is back.",
    ]


def test_a_quick_answer_says_nothing(worker, caplog):
    async def quick() -> list:
        return [1]

    with caplog.at_level(logging.INFO):
        logging.getLogger("prefect").propagate = True
        assert asyncio.run(worker._while_reachable(quick, [])) == [1]
    assert said(caplog) == []
