"""A connection to the class server: read by a parser in C, and closed if the head of a request is too long or doesn't come.

Anybody may open one, without a login, so one that says nothing, or never comes to its end, must cost little.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10  # of a request's line and headers, trailers included: ours have a few hundred
HEAD_SECONDS = 30.0  # for them to come: from the connection's begin, later from a request's first byte


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's, with these two limits; between two requests it has one of its own (`timeout_keep_alive`)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: asyncio.TimerHandle | None = None  # while a head is to come
        self._head = self._fields = 0  # bytes that came meanwhile, and those of whole headers

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._awaited is not None:
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self.transport.abort()  # `close` would read on for a while, and throw away what comes

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = self._fields = 0
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += len(name) + len(value)
        if self._fields > HEAD_BYTES:
            self.transport.abort()
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_here()
        super().on_headers_complete()

    def _await_head(self) -> None:
        if self._awaited is None:
            self._awaited = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_is_here(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
