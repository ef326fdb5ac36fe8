"""Whole classes, shared by the acceptance tests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from campus import HOSTS, Campus, School, put_modules_like_ours
from fake_hub import fake_hub
from network import hosts
from poll import wait_until

from deployments.local.processes import free_port
from deployments.local.stack import LocalStack
from deployments.server.class_file import make
from gan_core.networks.update import State
from gan_core.plan import Plan

WORKERS = ("ada", "grace", "alan")


@pytest.fixture(scope="session")
def school(
    tmp_path_factory: pytest.TempPathFactory, reference: Callable[[Plan], State], class_home: Callable[[Path], None]
) -> Iterator[School]:
    """Servers, a coordinator's worker and three students' workers, in a folder whose name has a space and that has modules
    called like ours: nobody imports those.
    """
    folder = tmp_path_factory.mktemp("a class")
    class_home(folder / "home")
    with LocalStack(folder / "home", folder / "outputs", WORKERS) as stack:
        put_modules_like_ours(stack.home)  # where coordinators and shifts will start
        yield School(stack, reference)


@pytest.fixture(scope="session")
def plan(tiny: Plan) -> Plan:
    """Units of a quarter of a second, so that there is a middle in which to strike."""
    return tiny.changed(
        batch_size=16,
        generator_width=8,
        discriminator_width=8,
        images_per_unit=160,
        quorum=480,
        iterations=12,
        lease_seconds=6,
        checkpoint_interval=4,
    )


@dataclass(frozen=True)
class TrainingRecord:
    """A training from its start to its end."""

    name: str
    plan: Plan
    run: str  # its coordinator's


@pytest.fixture(scope="session")
def story(school: School, plan: Plan) -> TrainingRecord:
    """The one at which all look who need no more than a training that went well."""
    plan = plan.changed(
        iterations=6, sample_interval=2, push_interval=2, evaluate_interval=2
    )  # few enough that none is left out
    told = TrainingRecord("story", plan, school.start("story", plan))
    school.await_success(told.name)
    wait_until(
        lambda: school.stack.run_state(told.run)[0] == "Completed",
        300,
        "the run's end: what is drawn, evaluated and checked after the last iteration",
    )
    return told


@pytest.fixture(scope="module")
def campus(
    tmp_path_factory: pytest.TempPathFactory, reference: Callable[[Plan], State], class_home: Callable[[Path], None]
) -> Iterator[Campus]:
    folder = tmp_path_factory.mktemp("campus")
    class_home(folder / "home")
    with (
        hosts(*HOSTS) as network,
        fake_hub(network.address) as hub,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("HF_ENDPOINT", hub.url)
        class_file = make(folder / "home", (network.address,), "0.0.0.0", free_port(0), "")
        with LocalStack(folder / "home", folder / "outputs", class_file=class_file) as stack:
            campus = Campus(stack, reference, class_file, folder, network, hub)
            try:
                yield campus
            finally:
                campus.stop_machines()
