"""A network that can fail: passes a PostgreSQL unix socket on, and is cut where a test wants it."""

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Between one machine and the database. Use as a context manager; `url` is the machine's address of the database."""

    def __init__(self, url: str) -> None:
        self._real = str(Path(unquote(url.rpartition("host=")[2])) / SOCKET)
        self._folder = tempfile.TemporaryDirectory(prefix="classgan-proxy-")
        self.url = url.rpartition("host=")[0] + "host=" + quote(self._folder.name, safe="")
        self._listener = socket.socket(socket.AF_UNIX)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._budget: int | None = None  # bytes that may still pass upstream before the cut
        self._swallow = 0  # answers are lost once so many bytes have gone upstream
        self._sent = 0
        self.cuts = 0

    def __enter__(self) -> "Proxy":
        self._listener.bind(str(Path(self._folder.name) / SOCKET))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.close()
        self.cut()
        self._folder.cleanup()

    def cut(self) -> None:
        """Break every connection; new ones are let through."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
            self._budget, self._swallow = None, 0
            self.cuts += 1
        for near, far in pairs:
            self._end(near, far)

    def cut_after(self, count: int) -> None:
        """Break every connection once so many more bytes have gone to the database: in the middle of a blob."""
        self._budget = count

    def lose_answer_after(self, count: int) -> None:
        """Let so many bytes go to the database, then break every connection when it answers: the answer is lost."""
        self._sent, self._swallow = 0, count

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._real)
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
