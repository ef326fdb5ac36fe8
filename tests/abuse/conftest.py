"""A class server with a real Prefect behind it, for all tests of abuse that want one."""

from collections.abc import Callable, Iterator

import pytest
from gated import Gate, gate_in


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory, prefects_records: Callable[[], dict[str, str]]) -> Iterator[Gate]:
    with gate_in(tmp_path_factory.mktemp("gate"), prefects_records()) as gate:
        yield gate


@pytest.fixture(scope="session")
def theirs(gate: Gate) -> str:
    """A run that grace has taken and runs."""
    return gate.taken_shift("grace")
