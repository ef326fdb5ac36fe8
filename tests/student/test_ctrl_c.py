"""Ctrl-C on a student's machine: real processes and signals here; of Windows, which flags are passed and what is sent."""

import runpy
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from systems import needs

from deployments import ctrl_c

ENDS_CALMLY = """
import time
from deployments.ctrl_c import heed_all
heed_all()
try:
    print("ready", flush=True)
    for _ in range(600):  # Ctrl-Break wakes no sleep
        time.sleep(0.1)
except KeyboardInterrupt:
    print("calmly")
"""
IS_CANCELLED = """
import asyncio
from deployments.ctrl_c import cancel_on, endings

async def work():
    cancel_on(endings(), asyncio.current_task())
    print("ready", flush=True)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("cancelled")

asyncio.run(work())
"""


def started(program: str) -> "subprocess.Popen[bytes]":
    process = ctrl_c.start_apart([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().split() == [b"ready"]
    return process


def test_what_was_started_apart_gets_ctrl_c_from_its_parent_alone():
    process = started(ENDS_CALMLY)
    ctrl_c.hand_on(process)
    assert process.communicate(timeout=30)[0].split() == [b"calmly"]
    ctrl_c.hand_on(process)  # it has ended: nothing happens


def test_a_signal_cancels_a_task_where_asyncio_does_not_see_to_it():
    """On Windows, the worker hears of Ctrl-C by Ctrl-Break, which would end it at once."""
    process = started(IS_CANCELLED)
    process.send_signal(signal.CTRL_BREAK_EVENT if sys.platform == "win32" else signal.SIGTERM)
    assert process.communicate(timeout=30)[0].split() == [b"cancelled"]


@needs("SIGHUP")
def test_who_works_under_nohup_goes_on_when_the_terminal_is_closed(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    assert signal.SIGHUP not in ctrl_c.endings()
    assert {signal.SIGINT, signal.SIGTERM} <= set(ctrl_c.endings())


@pytest.fixture
def on_windows(monkeypatch) -> SimpleNamespace:
    """The module as Windows would import it."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    if not hasattr(signal, "SIGBREAK"):
        monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR1, raising=False)
    return SimpleNamespace(**runpy.run_path(ctrl_c.__file__))


def test_on_windows_a_process_leads_its_own_group_and_is_sent_ctrl_break(on_windows, monkeypatch):
    """Ctrl-Break reaches the group whose number it is sent to; sent to a process that leads none, it is an error."""
    asked = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: asked.append(options))
    on_windows.start_apart(["worker"], cwd="somewhere")
    assert asked == [{"cwd": "somewhere", "creationflags": 0x200}]
    sent = []
    on_windows.hand_on(SimpleNamespace(poll=lambda: None, send_signal=sent.append))
    assert sent == [1]
    assert signal.SIGBREAK in on_windows.endings()


def test_who_waits_for_a_process_looks_up_again_and_again():
    """In a wait without an end Windows sees no Ctrl-C: `classgan join` could not be stopped."""
    looks, waits = iter([None, None, 0]), []

    def wait(timeout: float) -> None:
        waits.append(timeout)
        raise subprocess.TimeoutExpired("worker", timeout)

    ctrl_c.wait_for(SimpleNamespace(poll=lambda: next(looks), wait=wait))
    assert waits == [ctrl_c.GLANCE] * 2


SHIFT = """
import os, signal, sys
from deployments.student import locked_process
sys.platform, signal.SIGBREAK = "win32", signal.SIGUSR1
locked_process.finish_first()
os.kill(os.getpid(), signal.SIGUSR1)
print("goes on")
"""


@needs("SIGUSR1")
def test_a_shift_on_windows_outlives_the_ctrl_break_that_prefects_worker_passes_on():
    """The unit at hand would be lost; it ends by the worker's file."""
    said = subprocess.run([sys.executable, "-c", SHIFT], capture_output=True, text=True, check=False)
    assert said.stdout == "goes on\n", said.stderr
