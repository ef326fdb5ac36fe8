"""A training with many open units, and machines that answer for them without computing."""

from collections.abc import Callable, Iterator

import pytest
from answering import PAYLOAD, Machine
from psycopg import Connection

from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.migrate import add_student

UNITS = 150


@pytest.fixture
def training(connection: Connection, tiny: Plan) -> int:
    """A running training; payloads have as many bytes as a machine's answer."""
    row = trainings.create(connection, "test", tiny.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 5000, len(PAYLOAD), b"weights 0")
    units, position = cut_units(tiny, 0, 5000, None, UNITS * 16)
    unit_queue.create_units(connection, row.id, 0, UNITS * 16, position, units)
    return row.id


@pytest.fixture
def machine_of(database: str, connection: Connection) -> Iterator[Callable[..., Machine]]:
    """A student's machine; the student exists from then on."""
    made: list[Machine] = []

    def make(login: str, name: str = "desk") -> Machine:
        add_student(connection, login)
        made.append(Machine(database, login, name))
        return made[-1]

    yield make
    for machine in made:
        machine.connection.close()
