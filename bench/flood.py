"""One student who asks as fast as a machine can, on every route that students have: `python -m bench.flood URL`. Ends when its stdin does."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import httpx

from bench.children import say, when_stdin_closes
from deployments.server.gate.requests import ALLOWED, ID
from deployments.server.service.parameters import PREFIX as SERVICE
from gan_core.store import student
from gan_core.store.door import PREFIX, Door

THREADS = 8
NOBODY = "00000000-0000-0000-0000-000000000000"
ASKED = {"claim": f'{{"worker": 1, "boot": "{NOBODY}"}}', "heartbeat": f'{{"worker": 1, "boot": "{NOBODY}"}}'}
ROUTES = (
    *(("POST", f"{PREFIX}/calls/{name}", ASKED.get(name, "{}")) for name in student.CALLS),
    ("POST", f"{PREFIX}/calls/nonsense", "x" * 60_000),
    ("POST", f"{PREFIX}/wait", '{"heard": 0, "seconds": 0}'),
    ("POST", f"{PREFIX}/trainings/1/weights/0", ""),
    ("GET", f"{PREFIX}/uploads/1?boot={NOBODY}", ""),
    ("PUT", f"{PREFIX}/uploads/1?boot={NOBODY}", "x" * 60_000),
    ("GET", f"{SERVICE}/trainings", ""),
    *((method, f"/api{path.replace(ID, NOBODY)}", "{}") for method, path, _ in ALLOWED),  # Prefect's
)


def storm(url: str, over: Callable[[], bool]) -> None:
    door = Door(url)
    while not over():
        for method, path, body in ROUTES:
            with suppress(httpx.TransportError):
                door._client.request(method, f"https://{door.place}{path}", content=body)


def main(url: str) -> None:
    over = threading.Event()
    for _ in range(THREADS):
        threading.Thread(target=storm, args=(url, over.is_set), daemon=True).start()
    say("storms")
    when_stdin_closes(over.set)
    over.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
