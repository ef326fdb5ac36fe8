"""The class server stops in the middle of a shift: a real worker process, and what stands in the student's terminal."""

import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gated import Gate, gate_in
from poll import wait_until

from deployments.local.processes import stop_trees
from deployments.prefect_settings import PREFECT
from deployments.student.worker import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GIVES_UP = (
    40.0  # seconds after which Prefect's own watchers would have given up for good: three looks, ten seconds apart
)
AWAY = f"The class server does not answer (for {PATIENCE:.0f} s). A running shift goes on, and this machine goes on by itself when the class is back."


@dataclass
class Terminal:
    """A student's: the worker that runs in it, and what it has said."""

    process: subprocess.Popen[bytes]
    log: Path

    def lines(self) -> list[str]:
        """But for those of units and their pauses."""
        said = self.log.read_text(encoding="utf-8").splitlines()
        return [line for line in said if line.strip() and "classgan.shift - it " not in line]


@pytest.fixture(scope="module")
def gate(tmp_path_factory, prefects_records) -> Iterator[Gate]:
    with gate_in(tmp_path_factory.mktemp("gate"), prefects_records()) as gate:
        yield gate


@pytest.fixture
def terminal(school, gate, cache, tmp_path) -> Iterator[Terminal]:
    log = tmp_path / "terminal.log"
    reach = gate.client_environment(
        "ada",
        CLASSGAN_DATABASE_URL=school.student_url("ada"),
        CLASSGAN_HOME=str(tmp_path),
        CLASSGAN_WORKER_NAME="ada",
        CLASSGAN_THREADS="1",
    )
    command = [*PREFECT, "worker", "start", "--pool", "students", "--type", "gan-student", "--name", "ada"]
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, env=reach, stdout=said, stderr=said, stdin=subprocess.DEVNULL, cwd=tmp_path, start_new_session=True
        )
    try:
        yield Terminal(process, log)
    finally:
        stop_trees([process], 20, threading.Event())


def test_the_student_reads_one_sentence_and_the_shift_goes_on(school, gate, short, terminal):
    """No traceback, no advice about environments; once the server is back, that is said, and the run can be cancelled."""
    plan = short.changed(iterations=100_000, lease_seconds=30, images_per_unit=512, quorum=1024)
    leader = school.lead("away", plan)
    run = gate.scheduled_shift()
    school.await_iteration("away", 2, seconds=180)
    before = terminal.lines()
    gate.stop()
    wait_until(lambda: any(AWAY in line for line in terminal.lines()[len(before) :]), 60, "the sentence")
    time.sleep(GIVES_UP)  # this is the fault itself, not a wait for something
    reached = school.iteration("away")
    school.await_iteration("away", reached + 1, seconds=60)  # the class is only half away: its database answers
    gate.start()
    away = next(n for n, line in enumerate(terminal.lines()) if n >= len(before) and AWAY in line)
    wait_until(lambda: len(terminal.lines()) > away + 1, 90, "the server's return, told")
    away, back = terminal.lines()[away : away + 2]
    assert away.endswith(f" | WARNING | prefect.workers.gan-student.ada - {AWAY}")
    assert back.endswith(" | WARNING | prefect.workers.gan-student.ada - The class server is back.")
    gate.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": True})
    wait_until(lambda: gate.state_of(run) == "CANCELLED", 90, "the end of the run, as a person wants it")
    assert "Traceback" not in terminal.log.read_text(encoding="utf-8")
    school.end(leader)
