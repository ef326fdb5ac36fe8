"""What answers in a class server's place: one that has too much to do, or a proxy on the way to it."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from deployments.server import certificate
from deployments.student.addresses import student_url


class StandIn(ThreadingHTTPServer):
    """Counts its connections, and keeps each for the next request.

    Args:
        answer: writes the whole answer to a request whose body was read.
    """

    daemon_threads = True

    def __init__(self, folder: Path, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                answer(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        certificate.make(folder / "class.pem", folder / "class.key", ["127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "class.pem", folder / "class.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.connections = 0
        self.url = student_url(f"https://127.0.0.1:{self.server_port}", folder / "class.pem", "ada", "a secret")

    def process_request(self, request, client_address) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request, client_address) -> None:
        """Whoever asked has hung up."""


def reply(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: object) -> None:
    """A whole answer; `retry_after=7` is the header Retry-After."""
    request.send_response(status)
    for name, value in {"content_length": len(body), **headers}.items():
        request.send_header(name.replace("_", "-"), str(value))
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def stand_in(folder: Path, answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[StandIn]:
    server = StandIn(folder, answer)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
