"""The class as a service, over HTTP: two owners, a student without rights, and the instructor; a real database behind it."""

from collections.abc import Iterator

import psycopg
import pytest
from databases import clone_of
from gated import Service

from gan_core.store.migrate import add_student


@pytest.fixture(scope="session")
def base(server) -> Iterator[str]:
    with clone_of(server) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for login, name in (("ada", "Ada L."), ("grace", "Grace H."), ("mallory", "M."), ("alan", "Alan T.")):
                add_student(connection, login, name)
        yield url


@pytest.fixture(scope="session")
def service(base, tmp_path_factory, prefects_records) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    more = {"CLASSGAN_DATABASE_URL": base, "CLASSGAN_OUTPUTS": str(folder / "outputs")}
    service = Service(folder, CLASSGAN_STUDENT_TRAININGS="3", **more, **prefects_records())
    try:
        service.start()
        yield service
    finally:
        service.stop()


@pytest.fixture
def connection(base) -> Iterator[psycopg.Connection]:
    with psycopg.connect(base, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _end_all(connection) -> Iterator[None]:
    """What a test submitted takes no place from the next, and its machines do nothing for it."""
    yield
    connection.execute("TRUNCATE classgan.trainings, classgan.workers CASCADE")
