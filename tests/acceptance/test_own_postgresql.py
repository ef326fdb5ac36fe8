"""A class whose instructor has a PostgreSQL: another version than the wheel's, with a password, over TCP, and no superuser."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from campus import Campus
from fake_hub import fake_hub
from network import hosts
from poll import wait_until
from psycopg import sql

from deployments.local.processes import free_port
from deployments.local.stack import LocalStack
from deployments.server.class_file import make

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = "it's: a p@ss/word"


def programs() -> Path | None:
    """Where this machine's own PostgreSQL has its programs: the newest of Debian's, or what is on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    there = found[-1] if found else shutil.which("initdb")
    return Path(there).parent if there else None


@pytest.fixture
def own_database() -> Iterator[str]:
    """URL of an empty database there, as a role that owns it and may make roles."""
    if (binaries := programs()) is None:
        pytest.skip("This machine has no PostgreSQL of its own. To run this test: apt install postgresql")
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    folder, port = Path(tempfile.mkdtemp(prefix="classgan-own-")), free_port(0)
    if user:
        shutil.chown(folder, user)
    subprocess.run(
        [binaries / "initdb", "-D", folder / "data", "-U", "admin", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"],
        user=user, cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    server = subprocess.Popen(
        [binaries / "postgres", "-D", folder / "data", "-k", folder, "-p", str(port), "-c", "listen_addresses=127.0.0.1"],
        user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        admin = f"postgresql://admin@/postgres?host={folder}&port={port}"
        wait_until(lambda: answers(admin), 60, "PostgreSQL")
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE teacher LOGIN CREATEROLE PASSWORD {}").format(sql.Literal(SECRET)))
            for name in ("gan", "gan_prefect"):
                connection.execute(f"CREATE DATABASE {name} OWNER teacher")
        yield f"postgresql://teacher:{quote(SECRET, safe='')}@127.0.0.1:{port}/gan"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_class_works_with_a_postgresql_that_was_there_before(own_database, tmp_path, tiny, reference):
    plan = tiny.changed(iterations=3)
    with hosts("ada") as network, fake_hub(network.address) as hub:
        class_file = make(tmp_path / "home", (network.address,), "0.0.0.0", free_port(0), own_database)
        with LocalStack(tmp_path / "home", tmp_path / "outputs", class_file=class_file) as stack:
            campus = Campus(stack, reference, class_file, tmp_path, network, hub)
            campus.join(campus.invite("ada"))
            try:
                campus.start("own", plan)
                campus.await_success("own")
            finally:
                campus.stop_machines()
            campus.assert_equals_the_reference("own", plan)
            assert campus.images_of("ada") == plan.iterations * plan.quorum
            assert campus.ask("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(False,)]
            assert not (stack.home / "postgres").exists()  # nothing lies in one of the class's own
