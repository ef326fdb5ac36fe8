"""A network that can fail: passes a machine's connections to the class server on, and is cut where a test wants it."""

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Proxy:
    """Between one machine and the class server. Use as a context manager; `url` is the server's address for the machine."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._real = "127.0.0.1", parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        here = self._listener.getsockname()[1]
        self.url = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{here}")).geturl()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._budget: int | None = None  # bytes that may still pass upstream before the cut
        self._swallow = 0  # answers are lost once so many bytes have gone upstream
        self._sent = 0
        self.cuts = 0

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection; new ones are let through."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
            self._budget, self._swallow = None, 0
            self.cuts += 1
        for near, far in pairs:
            self._end(near, far)

    def cut_after(self, count: int) -> None:
        """Break every connection once so many more bytes have gone to the class server: in the middle of a blob."""
        self._budget = count

    def lose_answer_after(self, count: int) -> None:
        """Let so many bytes go to the class server, then break every connection when it answers: the answer is lost."""
        self._sent, self._swallow = 0, count

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._real)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._up, args=(near, far), daemon=True).start()
            threading.Thread(target=self._down, args=(near, far), daemon=True).start()

    def _up(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(4096):
                if self._budget is not None:
                    if len(data) > self._budget:
                        far.sendall(data[: self._budget])
                        self.cut()
                        return
                    self._budget -= len(data)
                self._sent += len(data)
                far.sendall(data)
        self._end(near, far)

    def _down(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                if self._swallow and self._sent >= self._swallow:
                    self.cut()
                    return
                near.sendall(data)
        self._end(near, far)

    @staticmethod
    def _end(near: socket.socket, far: socket.socket) -> None:
        """Only shut down: closed they are when nobody refers to them, or another thread could hit a new socket's number."""
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
