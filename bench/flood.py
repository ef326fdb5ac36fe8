"""One student who asks as fast as a machine can: `python -m bench.flood URL`. Ends when its stdin does."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import httpx

from bench.children import say, when_stdin_closes
from gan_core.store.door import Door

THREADS = 8
ROUTES = (
    ("POST", "/calls/my_credit", b"{}"),
    ("POST", "/calls/leaderboard", b"{}"),
    ("POST", "/calls/trainings", b"{}"),
    ("POST", "/calls/claim", b'{"worker": 1, "boot": "00000000-0000-0000-0000-000000000000"}'),
    ("POST", "/trainings/1/weights/0", b""),
    ("GET", "/uploads/1?boot=00000000-0000-0000-0000-000000000000", b""),
    ("POST", "/calls/nonsense", b"x" * 60_000),
)


def storm(url: str, over: Callable[[], bool]) -> None:
    door = Door(url)
    while not over():
        for method, path, body in ROUTES:
            with suppress(httpx.TransportError):
                door._client.request(method, path, content=body)


def main(url: str) -> None:
    over = threading.Event()
    for _ in range(THREADS):
        threading.Thread(target=storm, args=(url, over.is_set), daemon=True).start()
    say("storms")
    when_stdin_closes(over.set)
    over.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
