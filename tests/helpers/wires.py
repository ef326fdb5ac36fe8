"""What lies between a student's machine and its class: a network that cuts, a school's proxy."""

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress

ENDLESS = 1 << 40  # bytes


class Wire(ABC):
    """Takes connections on a port of its own, and joins each with another one. What a subclass says: with which, and for how long."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._listening = socket.create_server((host, 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @abstractmethod
    def further(self, near: socket.socket) -> tuple[socket.socket, int]:
        """The other end for this connection, and how many bytes may pass in each direction."""

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far, left = self.further(near)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pour, args=(source, sink, left), daemon=True).start()


def _pour(source: socket.socket, sink: socket.socket, left: int) -> None:
    with suppress(OSError):
        while left > 0 and (piece := source.recv(min(left, 1 << 14))):
            sink.sendall(piece)
            left -= len(piece)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Scissors(Wire):
    """Ends a connection after so many bytes in a direction; as often as there are numbers."""

    def __init__(self, port: int, *cuts: int) -> None:
        self._behind, self._cuts = port, list(cuts)
        super().__init__()

    def further(self, near: socket.socket) -> tuple[socket.socket, int]:
        far = socket.create_connection(("127.0.0.1", self._behind))
        return far, self._cuts.pop(0) if self._cuts else ENDLESS


class SchoolProxy(Wire):
    """Lets nothing through but CONNECT."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.asked: list[str] = []
        super().__init__(host)
        self.url = f"http://{host}:{self.port}"

    def further(self, near: socket.socket) -> tuple[socket.socket, int]:
        head = b""
        while b"\r\n\r\n" not in head:
            head += near.recv(4096)
        method, target, _ = head.decode().split(maxsplit=2)
        self.asked.append(f"{method} {target}")
        host, _, port = target.partition(":")
        far = socket.create_connection((host, int(port)))
        near.sendall(b"HTTP/1.1 200 go on\r\n\r\n")
        return far, ENDLESS
