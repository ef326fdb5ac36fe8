"""A class server over TLS whose Prefect is left out: what students' shifts ask of it never reaches Prefect."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import uvicorn
from poll import wait_until

from deployments.local.processes import free_port
from deployments.server import certificate
from deployments.server.app import class_server
from deployments.server.connections import GuardedProtocol
from deployments.server.door.app import StudentDoor
from deployments.student.addresses import student_url
from gan_core.store.door import PREFIX, Door
from gan_core.store.engine import connect
from gan_core.store.logins import hash_of, hashes, issue


async def no_prefect(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI app that starts, ends, and does nothing between."""
    while scope["type"] == "lifespan" and (said := (await receive())["type"]):
        await send({"type": f"{said}.complete"})
        if said.endswith("shutdown"):
            return


class DoorServer:
    """One that can be stopped and started again at the same port."""

    def __init__(self, database: str, folder: Path) -> None:
        self.database, self.folder, self.port = database, folder, free_port(0)
        self.pem = folder / "class.pem"
        self.secrets: dict[str, str] = {}
        certificate.make(self.pem, folder / "class.key", ["127.0.0.1"])

    def admit(self, *logins: str) -> None:
        """These are students of the class."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            self.secrets |= {login: issue(connection, login) for login in logins}

    def url(self, login: str) -> str:
        """What the student's machine knows."""
        if login not in self.secrets:
            self.admit(login)
        return student_url(f"https://127.0.0.1:{self.port}", self.pem, login, self.secrets[login])

    def door(self, login: str) -> Door:
        return Door(self.url(login))

    def client(self, login: str) -> httpx.Client:
        """For requests that no machine of ours would make."""
        url = self.url(login)
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port}{PREFIX}",
            auth=(login, self.secrets[login]),
            verify=Door(url).trust,
            timeout=60,
        )

    def start(self) -> None:
        def students() -> dict[str, str]:
            with connect(self.database) as connection:
                return hashes(connection)

        self.app = class_server(
            no_prefect,
            instructor_hash=hash_of("the instructor's secret"),
            student_hashes=students,
            inner_secret="inner",
            refresh_seconds=0.2,
            database_url=self.database,
            door=StudentDoor(self.database, self.folder / "on-the-way"),
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app,
                host="127.0.0.1",
                port=self.port,
                ssl_certfile=str(self.pem),
                ssl_keyfile=str(self.folder / "class.key"),
                http=GuardedProtocol,
                lifespan="on",
                log_level="warning",
                timeout_keep_alive=30,  # as the real one: longer than a machine keeps a connection
                timeout_graceful_shutdown=0,
            )
        )
        self._thread = threading.Thread(target=self._server.run, name="class server")
        self._thread.start()
        wait_until(
            lambda: self._server.started and self.app._logins._students is not None and self.app._door._notices.heard,
            20,
            "the class server",
        )

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@contextmanager
def door_of(database: str, folder: Path) -> Iterator[DoorServer]:
    server = DoorServer(database, folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
