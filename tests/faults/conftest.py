"""The class under faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.machines import Quirks
from faults.school import FaultySchool, faulty_school

from gan_core.data.images import ImageSet
from gan_core.networks.reference import train_local
from gan_core.networks.update import State
from gan_core.plan import Plan


@pytest.fixture
def told(record_property):
    """Adds a row to the table: fault, phase, seconds until the training moved again."""
    return lambda fault, phase, seconds: record_property("moved again", (str(fault.value), str(phase.value), seconds))


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory, cache: Path, digits: ImageSet) -> Iterator[FaultySchool]:
    """A database of its own, which faults may kill."""
    with faulty_school(tmp_path_factory.mktemp("faults"), cache) as school:
        yield school


@pytest.fixture(scope="module")
def grace(school: FaultySchool):
    """A healthy worker that must survive everything."""
    machine = school.worker("grace", quirks=Quirks(slow=0.1))  # or nothing would be left for the others
    yield machine
    assert machine.is_alive, "a healthy worker died"


@pytest.fixture(scope="session")
def short(tiny: Plan) -> Plan:
    """Five iterations of three units, with leases that end soon."""
    return tiny.changed(iterations=5, lease_seconds=2)


@pytest.fixture(scope="session")
def unbroken(short: Plan, digits: ImageSet) -> State:
    """What the plan leads to when nothing goes wrong."""
    return train_local(short, digits)
