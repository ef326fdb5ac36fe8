"""The student's worker while its class server is away; without a server: the questions are played."""

import asyncio
import logging
from types import SimpleNamespace

import httpx
import pytest
from prefect.states import Completed, Crashed, Failed

from deployments.student import worker as workers
from deployments.student.worker import PinnedConfiguration, StudentResult, StudentWorker
from flows.gradient_compute import BROKEN, HUNG_EXIT


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


def test_a_device_that_breaks_again_and_again_gives_way_to_the_cpu(worker, monkeypatch, caplog):
    """Each fresh process finds it in order, computes for a while, and loses a lease."""
    used, ends = [], iter([Failed(name=BROKEN), Completed(), Crashed(), Failed(name=BROKEN), Completed()])
    codes = iter([0, 0, HUNG_EXIT, 0, 0])

    async def run_on(device: str, *_: object) -> StudentResult:
        used.append(device)
        return StudentResult(status_code=next(codes), identifier="1")

    async def read_flow_run(number: object) -> SimpleNamespace:
        return SimpleNamespace(state=next(ends))

    monkeypatch.setattr(worker, "_run_on", run_on)
    monkeypatch.setattr(worker, "_client", SimpleNamespace(read_flow_run=read_flow_run))
    worker._free_devices = ["cuda:0"]
    with caplog.at_level(logging.WARNING):
        logging.getLogger("prefect").propagate = True
        for _ in range(5):
            asyncio.run(worker.run(SimpleNamespace(id=1), PinnedConfiguration()))
    assert used == ["cuda:0"] * 4 + ["cpu"]
    assert "cuda:0 has stopped working in 3 shifts: this machine computes on the CPU from now on." in caplog.text


def test_a_driver_that_hangs_does_not_hold_the_worker_up(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(workers, "DRIVER_SECONDS", 0.2)
    assert workers.devices() == [""]
