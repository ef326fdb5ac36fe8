"""The class server as a process: Prefect behind per-person logins, over TLS. `classgan up` starts it.

Its environment has PREFECT_SERVER_API_AUTH_STRING, the secret that Prefect itself asks for and nobody else is told.
"""

import sys

import uvicorn
from prefect.server.api.server import create_app

from deployments.monitoring.collector import exposition
from deployments.server.app import class_server
from deployments.server.class_file import ClassFile
from deployments.server.connections import GuardedProtocol
from deployments.server.door.app import StudentDoor
from deployments.server.gate.scrapes import Scrapes
from gan_core.errors import StackError
from gan_core.settings import settings
from gan_core.store.engine import connect
from gan_core.store.logins import hash_of, hashes

CONNECTIONS = 10_000  # of 500 students: up to a dozen a machine at work; those that say nothing cost memory
FRAME = 1 << 20  # bytes of a websocket frame: Prefect's own are a few kilobytes


def main() -> None:
    """Serve until a signal comes."""
    home, url = settings().home, settings().database_url
    class_file = ClassFile.load(home)
    if class_file is None:
        raise StackError(f"No class was made in {home.resolve()}. Make one: classgan init --address HOST")

    def students() -> dict[str, str]:
        with connect(url) as connection:
            return hashes(connection)

    _allow_open_files()
    app = class_server(
        create_app(),
        instructor_hash=class_file.instructor_hash,
        student_hashes=students,
        inner_secret=class_file.inner_login,
        scrapes=Scrapes(exposition(url), hash_of(class_file.scrape_secret)),
        database_url=url,
        door=StudentDoor(url, home / "on-the-way"),
    )
    uvicorn.run(
        app,
        host=class_file.listen,
        port=class_file.port,
        ssl_certfile=str(home / "class.pem"),
        ssl_keyfile=str(home / "class.key"),
        http=GuardedProtocol,
        # Not uvloop, though it takes less time: while 500 machines handed in, handshakes waited for more than ten seconds.
        loop="asyncio",
        ws_max_size=FRAME,
        lifespan="on",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,  # longer than a student's machine keeps a connection, so that it never closes under a request
        timeout_graceful_shutdown=1,  # polls are held for half a minute
        log_level="warning",
    )


def _allow_open_files() -> None:
    """As many as there may be connections, where the system's hard limit lets us: many shells begin with a thousand."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2 * CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * CONNECTIONS)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    main()
