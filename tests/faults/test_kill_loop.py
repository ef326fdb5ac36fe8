"""One part of the class after the other is killed, the servers too. The class stays up, and its training ends as if nothing had been."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from campus import School
from faults.soak import verdict
from killing import kill_tree
from poll import wait_until

from deployments.local.notes import Notes, is_process, notes_in
from deployments.local.processes import free_port, with_variable
from deployments.local.stack import STACK, LocalStack
from deployments.prefect_settings import clean_environment
from gan_core.scheduler.demand import Demand
from gan_core.store.coordinator import trainings
from gan_core.store.engine import Link
from gan_core.store.scheduler import submissions
from tasks import control

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NAME = "indestructible"
PAUSES = (3, 9)  # seconds between two kills: most parts need longer to start
START_SECONDS, END_SECONDS = 240, 300  # on a busy computer


@pytest.fixture
def school(tmp_path, reference, class_home) -> Iterator[School]:
    """What a person gets who types `classgan up`, and Ctrl-C in the end."""
    home, outputs = tmp_path / "home", tmp_path / "outputs"
    class_home(home)
    (home / "logs").mkdir()
    where = {
        "CLASSGAN_HOME": str(home),
        "CLASSGAN_OUTPUTS": str(outputs),
        "CLASSGAN_THREADS": "1",
        "CLASSGAN_PREFECT_PORT": str(free_port(0)),  # another class would take the usual one while the server is dead
    }
    with (home / "logs" / "up.log").open("wb") as log:
        up = subprocess.Popen(
            [sys.executable, "-P", "-m", "deployments.cli", "up"],
            env={**clean_environment(), **where},
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: notes_in(home).is_up or up.poll() is not None, START_SECONDS, "the class")
        yield School(LocalStack(home, outputs).attach(), reference)
        assert up.poll() is None, "a part took the class along"
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0


@pytest.mark.parametrize("minutes", [2, pytest.param(10, marks=pytest.mark.rehearsal)])
def test_a_part_that_dies_never_takes_the_class_along(school, tiny, minutes):
    """PostgreSQL, Prefect's server, the instructor's worker and the coordinator, the students' workers and their shifts."""
    plan = tiny.changed(iterations=100_000, lease_seconds=5, min_quorum=1.0)  # no iteration closes early
    with Link(school.stack.database) as link:
        link.call(
            lambda c: submissions.submit(c, NAME, plan.model_dump(mode="json"), Demand().model_dump(), owner="ada")
        )
        school.await_iteration(NAME, 2)

        over = time.monotonic() + 60 * minutes
        while time.monotonic() < over:
            kill_one(notes_in(school.stack.home))
            time.sleep(random.uniform(*PAUSES))

        goal = 10 + link.call(lambda c: trainings.get(c, NAME)).iteration
        link.call(lambda c: control.change(c, NAME, {"iterations": goal}, "a test"))
    school.await_success(NAME, END_SECONDS)
    assert not any(verdict(school).values()), verdict(school)
    school.assert_equals_the_reference(NAME, plan.changed(iterations=school.iteration(NAME)))


def kill_one(notes: Notes) -> None:
    """kill -9 for any part or run of the class: alone, so that what it had started is nobody's, or with all of that."""
    parts = [pid for pid, _ in filter(is_process, notes.processes)]
    runs = [process.pid for process in with_variable(STACK, notes.mark) if process.pid not in parts]
    with suppress(psutil.NoSuchProcess):  # it has just ended by itself
        random.choice((kill_tree, lambda pid: psutil.Process(pid).kill()))(random.choice(parts + runs))
