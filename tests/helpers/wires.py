"""What lies between a student's machine and its class: a network that cuts, a school's proxy."""

import socket
import threading
from contextlib import suppress


class Scissors:
    """A network that lets so many bytes through in each direction of a connection, then ends it; as often as there are numbers."""

    def __init__(self, port: int, *cuts: int) -> None:
        self._behind, self._cuts = port, list(cuts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._behind))
            left = self._cuts.pop(0) if self._cuts else 1 << 40
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.pour, args=(source, sink, left), daemon=True).start()

    @staticmethod
    def pour(source: socket.socket, sink: socket.socket, left: int) -> None:
        try:
            while left > 0 and (piece := source.recv(min(left, 1 << 14))):
                sink.sendall(piece)
                left -= len(piece)
        except OSError:
            pass
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


class SchoolProxy:
    """Lets nothing through but CONNECT."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.asked: list[str] = []
        self._listening = socket.create_server((host, 0))
        self.url = f"http://{host}:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += near.recv(4096)
            method, target, _ = head.decode().split(maxsplit=2)
            self.asked.append(f"{method} {target}")
            host, _, port = target.partition(":")
            far = socket.create_connection((host, int(port)))
            near.sendall(b"HTTP/1.1 200 go on\r\n\r\n")
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=Scissors.pour, args=(source, sink, 1 << 40), daemon=True).start()

    def close(self) -> None:
        self._listening.close()
