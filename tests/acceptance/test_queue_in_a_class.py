"""Six trainings and room for three, on a class of four machines in which everything dies once."""

import psutil
import pytest
from campus import School
from poll import wait_until

from deployments.cli.trainings.control import reaching
from deployments.local.stack import LocalStack
from gan_core.plan import checked_plan
from gan_core.scheduler.demand import Demand
from gan_core.scheduler.survey import Rules, move, survey
from gan_core.store.coordinator import trainings
from gan_core.store.engine import connect
from gan_core.store.scheduler import submissions
from gan_core.units import TrainingState
from tasks import control
from tasks.background.keep_queue import kept_queue

pytestmark = [pytest.mark.slow, pytest.mark.rehearsal, pytest.mark.timeout(900)]

RULES = Rules()  # three at a time
ENDLESS = 10_000


@pytest.fixture
def four(tmp_path, reference, class_home):
    """Four machines, the servers, and the queue: what `classgan up --workers 4` keeps up."""
    class_home(tmp_path / "home")
    with (
        LocalStack(tmp_path / "home", tmp_path / "outputs", ("ada", "grace", "alan", "hedy")) as stack,
        kept_queue(stack.database, lambda: reaching(stack)),
    ):
        yield School(stack, reference)


def coordinator_of(school: School, name: str) -> psutil.Process:
    """The process of the run "train NAME"."""
    runs = school.stack._api("POST", "/flow_runs/filter", {"flow_runs": {"name": {"any_": [f"train {name}"]}}})
    ids = {run["id"] for run in runs}
    for process in psutil.Process(school.stack.children["instructor"].pid).children(recursive=True):
        if process.environ().get("PREFECT__FLOW_RUN_ID") in ids and "prefect.engine" in process.cmdline():
            return process
    raise AssertionError(f"{name} has no coordinator")


def test_three_run_two_wait_and_each_ends_with_the_weights_of_its_solo_run(four, tiny):
    knobs = {"batch_size": 16, "generator_width": 8, "discriminator_width": 8, "images_per_unit": 320, "quorum": 960}
    plan = tiny.changed(**knobs, checkpoint_interval=4)  # rounds of seconds: three at once tell Prefect enough

    def seen():
        with connect(four.stack.database) as connection:
            return survey(connection, RULES)

    def outlook(name: str):
        with connect(four.stack.database) as connection:
            return seen().outlooks.get(trainings.get(connection, name).id)

    def submit(name: str, seed: int, iterations: int, **demand: int) -> None:
        knobs = plan.changed(seed=seed, iterations=iterations).model_dump(mode="json")
        with connect(four.stack.database) as connection:
            submissions.submit(connection, name, knobs, Demand(**demand).model_dump(), "ada")

    for seed, name in enumerate(("first", "second", "third"), 1):
        submit(name, seed, ENDLESS)
    for name in ("first", "second", "third"):
        four.await_iteration(name, 2)
    submit("fourth", 4, 6)
    submit("fifth", 5, 6)
    submit("gpu", 6, 6, gpus=1, memory_mb=8_192)

    # Three run, two wait, one waits in vain: positions, reasons, estimates.
    wait_until(lambda: outlook("gpu") and outlook("gpu").never, 30, "the word that nobody has a GPU")
    assert "no machine of this class has a GPU" in outlook("gpu").reason
    assert [outlook(name).position for name in ("fourth", "fifth", "gpu")] == [1, 2, 3]
    for name in ("fourth", "fifth"):
        waiting = outlook(name)
        assert "3 trainings run at the same time" in waiting.reason, waiting.reason
        assert waiting.earliest is not None
        assert waiting.earliest <= waiting.latest
    with connect(four.stack.database) as connection:
        move(connection, "fifth", "", RULES)
        assert [outlook(name).position for name in ("fifth", "fourth")] == [1, 2]

        # One is cancelled: the one at the top takes its place, not the older one.
        control.cancel(connection, "second", "a test")
    four.await_success("fifth")
    assert four.iteration("fourth") <= four.iteration("fifth")

    # A coordinator is killed, then the database.
    struck = four.iteration("first")
    coordinator_of(four, "first").kill()
    four.await_iteration("first", struck + 2)
    struck = {name: four.iteration(name) for name in ("first", "third")}
    four.stack.postgres.process.kill()
    four.stack.postgres.process.wait()
    four.stack.postgres.start()
    for name, before in struck.items():
        four.await_iteration(name, before + 2)

    # All end as they should, each with the weights it would have had alone.
    with connect(four.stack.database) as connection:
        for name in ("first", "third"):
            control.change(connection, name, {"iterations": four.iteration(name) + 4}, "a test")
    for name in ("first", "third", "fourth"):
        four.await_success(name)
    assert four.state("second") is TrainingState.CANCELLED
    assert four.state("gpu") is TrainingState.QUEUED
    for name in ("first", "third", "fourth", "fifth"):
        with connect(four.stack.database) as connection:
            four.assert_equals_the_reference(name, checked_plan(trainings.get(connection, name).plan))
