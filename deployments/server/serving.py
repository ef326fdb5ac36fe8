"""The class server as a process: Prefect behind per-person logins, over TLS. `classgan up` starts it.

Its environment has PREFECT_SERVER_API_AUTH_STRING, the secret that Prefect itself asks for and nobody else is told.
"""

import uvicorn
from prefect.server.api.server import create_app

from deployments.monitoring.collector import exposition
from deployments.server.app import class_server
from deployments.server.class_file import ClassFile
from deployments.server.gate.scrapes import Scrapes
from gan_core.errors import StackError
from gan_core.settings import settings
from gan_core.store.engine import connect
from gan_core.store.logins import hash_of, hashes

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

    app = class_server(
        create_app(),
        instructor_hash=class_file.instructor_hash,
        student_hashes=students,
        inner_secret=class_file.inner_login,
        scrapes=Scrapes(exposition(url), hash_of(class_file.scrape_secret)),
        database_url=url,
    )
    uvicorn.run(
        app,
        host=class_file.listen,
        port=class_file.port,
        ssl_certfile=str(home / "class.pem"),
        ssl_keyfile=str(home / "class.key"),
        ws_max_size=FRAME,
        lifespan="on",
        limit_concurrency=4_000,  # 500 students' sockets and requests; connections that say nothing cost memory
        timeout_keep_alive=10,
        timeout_graceful_shutdown=1,  # polls are held for half a minute
        log_level="warning",
    )


if __name__ == "__main__":
    main()
