"""A class server with a real Prefect behind it, for all tests of abuse that want one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gated import Gate, gate_in


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory, prefect_home: Callable[[Path], None]) -> Iterator[Gate]:
    folder = tmp_path_factory.mktemp("gate")
    prefect_home(folder / "server")
    with gate_in(folder) as gate:
        yield gate


@pytest.fixture(scope="session")
def theirs(gate: Gate) -> str:
    """A run that grace has taken and runs."""
    return gate.taken_shift("grace")
