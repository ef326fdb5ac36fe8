"""The student's worker while its class server is away; without a server: the questions are played."""

import asyncio
import logging
import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest
from prefect.states import Completed, Crashed, Failed
from systems import needs

from deployments.student import worker as workers
from deployments.student.worker import PinnedConfiguration, StudentResult, StudentWorker
from flows.gradient_compute import BROKEN, HUNG_EXIT


@pytest.fixture
def worker(monkeypatch) -> StudentWorker:
    monkeypatch.setattr(workers, "lock", lambda: None)
    monkeypatch.setattr(workers, "be_patient", lambda: None)
    monkeypatch.setattr(workers, "PATIENCE", 0.01)
    return StudentWorker(work_pool_name="students", name="ada")


def test_a_worker_clears_up_what_a_killed_one_has_left(tmp_path, monkeypatch, request):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / "shifts" / f"{dead.pid}-x1y2"
    left.mkdir(parents=True)
    monkeypatch.setenv("CLASSGAN_HOME", str(tmp_path))
    request.getfixturevalue("worker")
    assert not left.exists()


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


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("cuda:0", "cuda:0 has stopped working in 3 shifts: this machine computes on the CPU from now on."),
        ("", "The system has ended 3 shifts: this machine's memory is short."),
    ],
)
def test_a_shift_that_the_system_kills_again_and_again_is_begun_ever_less_often(
    worker, monkeypatch, caplog, device, sentence
):
    """Where memory is too small for it, each one costs the class a lease."""
    used, codes = [], iter([-9, -6, -9, -9, 0])

    async def run_on(device: str, *_: object) -> StudentResult:
        used.append(device)
        return StudentResult(status_code=next(codes), identifier="1")

    async def read_flow_run(number: object) -> SimpleNamespace:
        return SimpleNamespace(state=Completed() if len(used) == 5 else Crashed())

    monkeypatch.setattr(worker, "_run_on", run_on)
    monkeypatch.setattr(worker, "_client", SimpleNamespace(read_flow_run=read_flow_run))
    worker._free_devices, pauses = [device], []
    with caplog.at_level(logging.WARNING):
        logging.getLogger("prefect").propagate = True
        for _ in range(5):
            asyncio.run(worker.run(SimpleNamespace(id=1), PinnedConfiguration()))
            pauses.append(worker._pause_after_fault / workers.PAUSE_AFTER_FAULT)
    assert pauses == [2, 4, 8, 16, 1]
    assert used == [device] * 3 + ["cpu"] * 2
    assert sentence in caplog.text


@pytest.mark.parametrize(
    ("status", "killed"),
    [(0, False), (1, False), (-15, False), (-2, False), (-9, True), (-11, True), (0xC0000005, True)],
)
def test_a_process_that_was_killed_is_told_from_one_that_ended(status, killed):
    assert workers.was_killed(status) is killed


LAPTOP = "GPU 0: NVIDIA GeForce RTX 3060 Laptop GPU (UUID: GPU-1b2c)"
SERVER = "\n".join(f"GPU {n}: NVIDIA A100-SXM4-40GB (UUID: GPU-{n})" for n in range(4))


@needs("shell scripts")
@pytest.mark.parametrize(
    ("listed", "visible", "setting", "found"),
    [
        (LAPTOP, None, "", ["cuda:0"]),
        (SERVER, None, "", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        (SERVER, "2,3", "", ["cuda:0", "cuda:1"]),
        (SERVER, "", "", [""]),
        (SERVER, "-1", "", [""]),
        (SERVER, "7", "", [""]),
        (SERVER, "1,7,2", "", ["cuda:0"]),
        (SERVER, "GPU-2", "", ["cuda:0"]),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None, "", [""]),
        (SERVER, None, "cuda:1, cpu, cuda:1,", ["cuda:1", "cpu"]),
    ],
)
def test_a_machine_has_the_devices_that_this_process_may_use(tmp_path, monkeypatch, listed, visible, setting, found):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CLASSGAN_DEVICE", setting)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert workers.devices() == found


@needs("shell scripts")
def test_a_driver_that_hangs_does_not_hold_the_worker_up(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(workers, "DRIVER_SECONDS", 0.2)
    assert workers.devices() == [""]
