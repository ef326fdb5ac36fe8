"""`/metrics` of the class server: who may read it, and a read for which nobody else has to wait."""

import asyncio
import hashlib
import hmac
from collections.abc import Callable

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from deployments.server.class_file import SCRAPER
from deployments.server.gate.requests import Answer

METRICS = "/metrics"
PATIENCE = 8.0  # seconds; Prometheus itself waits for ten
AWAY = b"# HELP classgan_up Whether the class's database answers.\n# TYPE classgan_up gauge\nclassgan_up 0.0\n"


class Scrapes:
    """Metrics for whoever has the login that opens them. It opens nothing else: only this knows it.

    Args:
        text: the metrics in Prometheus' format; may block for as long as it likes.
        secret_hash: hex SHA-256 of that login's secret.
        patience: seconds after which the database counts as away.
    """

    def __init__(self, text: Callable[[], bytes], secret_hash: str, patience: float = PATIENCE) -> None:
        self._text, self._hash, self._patience = text, secret_hash.lower(), patience
        self._reading: asyncio.Task[bytes] | None = None

    def admits(self, login: str, secret: str) -> bool:
        given = hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
        return hmac.compare_digest(given.encode(), self._hash.encode()) and login == SCRAPER

    async def answer(self) -> Answer:
        """Never more than one thread reads, however many ask and however long it takes."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(self._text))
        reading = self._reading
        done, _ = await asyncio.wait({reading}, timeout=self._patience)
        content = reading.result() if done else AWAY
        return Answer(200, content, ((b"content-type", CONTENT_TYPE_PLAIN_0_0_4.encode()),))
