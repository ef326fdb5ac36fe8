"""A hub of our own: what huggingface_hub asks to read a repository, over plain HTTP on this machine.

It can hold back a file, break a connection in the middle, and answer with an error; it remembers what was asked.
"""

import hashlib
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


@dataclass
class Repo:
    """One repository: its files, and what goes wrong with them."""

    kind: str  # dataset, model
    files: dict[str, bytes]
    commit: str = "a" * 40
    held_back: dict[str, threading.Event] = field(default_factory=dict)  # file → sent once this is set
    breaks: dict[str, list[int]] = field(default_factory=dict)  # file → bytes after which the next answers break off
    errors: dict[str, list[int]] = field(default_factory=dict)  # file → statuses of the next answers

    def info(self) -> dict:
        def lfs(content: bytes) -> dict:
            return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}

        files = [
            {"rfilename": name, "size": len(c), "blobId": git_name(c), **({"lfs": lfs(c)} if len(c) > 2000 else {})}
            for name, c in self.files.items()
        ]
        return {
            "_id": "1",
            "id": "any",
            "sha": self.commit,
            "siblings": files,
            "private": False,
            "tags": [],
            "downloads": 0,
        }


def git_name(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Hub:
    """The server, as a test sees it."""

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # (file, Range)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if match := re.fullmatch(r"/api/(dataset|model)s/([^/]+/[^/?]+)(?:/revision/([^/?]+))?(?:\?.*)?", self.path):
            kind, name, revision = match.groups()
            repo = self.hub.repos.get(name)
            if repo is None or repo.kind != kind:
                return self._fail(404, "RepoNotFound")
            if revision not in (None, "main", repo.commit):
                return self._fail(404, "RevisionNotFound")
            return self._send(json.dumps(repo.info()).encode())
        match = re.fullmatch(r"/(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        repo = self.hub.repos.get(match[1]) if match else None
        if match is None or repo is None or match[3] not in repo.files or match[2] != repo.commit:
            return self._fail(404, "EntryNotFound")
        return self._send_file(repo, match[3])

    def _send_file(self, repo: Repo, name: str) -> None:
        wanted = self.headers.get("Range", "")
        self.hub.asked.append((name, wanted))
        if gate := repo.held_back.get(name):
            gate.wait()
        if statuses := repo.errors.get(name):
            self._fail(statuses.pop(0), "")
            return
        content = repo.files[name]
        start = int(wanted[6:].rstrip("-")) if wanted else 0
        ends = repo.breaks.get(name)
        sent = content[start : start + ends.pop(0)] if ends else content[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = True

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _fail(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def data_hub(host: str = "127.0.0.1") -> Iterator[Hub]:
    server = ThreadingHTTPServer((host, 0), _Handler)
    server.daemon_threads = True
    hub = Hub(f"http://{host}:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def parquet(greys: range, label: int | None = None, features: bool = True, column: str = "picture") -> bytes:
    """A Parquet file of 8 x 8 images, image i of this grey, in row groups of three; the labels are i % 2 unless given."""
    rows = []
    for grey in greys:
        content = io.BytesIO()
        Image.new("RGB", (8, 8), (grey, grey, grey)).save(content, "PNG")
        rows.append({"bytes": content.getvalue(), "path": None})
    table = pa.table({"id": list(greys), column: rows, "class": [g % 2 if label is None else label for g in greys]})
    kinds = {column: {"_type": "Image"}, "class": {"_type": "ClassLabel", "names": ["even", "odd"]}}
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": kinds}})})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=3)
    return out.getvalue()
