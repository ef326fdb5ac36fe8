"""A Hugging Face Hub on this machine: what huggingface_hub asks to read a repository, and to push to one.

It can hold an answer back, refuse, and break a connection in the middle; it remembers what was asked.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "testtoken" * 4  # looks like one


@dataclass
class Repo:
    """One repository at its newest commit."""

    kind: str  # dataset, model
    files: dict[str, bytes] = field(default_factory=dict)
    commit: str = "a" * 40
    messages: list[str] = field(default_factory=list)  # one for each commit that was pushed

    def info(self) -> dict:
        files = [
            {"rfilename": name, "size": len(c), "blobId": git_name(c), **({"lfs": lfs(c)} if len(c) > 2000 else {})}
            for name, c in self.files.items()
        ]
        common = {"_id": "1", "id": "any", "private": False, "tags": [], "downloads": 0}
        return {**common, "sha": self.commit, "siblings": files}


def git_name(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def lfs(content: bytes) -> dict:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}


@dataclass
class Hub:
    """What the hub knows and was asked. A fault names a part of a path; it meets the next answers there."""

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)  # LFS: SHA-256 → content
    asked: list[str] = field(default_factory=list)  # "METHOD path"
    fetched: list[tuple[str, str]] = field(default_factory=list)  # (file, Range)
    hold: dict[str, threading.Event] = field(default_factory=dict)  # answered once this is set
    fail: dict[str, list[int]] = field(default_factory=dict)  # statuses
    breaks: dict[str, list[int]] = field(default_factory=dict)  # bytes of a file after which the connection ends

    def files(self, repo: str) -> dict[str, bytes]:
        return self.repos[repo].files


@contextmanager
def fake_hub(host: str = "127.0.0.1") -> Iterator[Hub]:
    """A running one."""
    server = ThreadingHTTPServer((host, 0), _Handler)
    server.daemon_threads = True
    hub = Hub(f"http://{host}:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        for gate in hub.hold.values():
            gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        parts = path.strip("/").split("/")
        self.hub.asked.append(f"{self.command} {path}")
        if self.command == "GET" and "resolve" in parts:
            self.hub.fetched.append((path.split("/resolve/")[1].partition("/")[2], self.headers.get("Range", "")))
        for part, gate in self.hub.hold.items():
            if part in path:
                gate.wait()
        if status := self._fault(self.hub.fail, path):
            return self._answer({"error": f"failing on demand; {self.headers.get('Authorization')}"}, status)
        match self.command, parts:
            case "PUT", ["lfs", oid]:
                if hashlib.sha256(body).hexdigest() != oid:
                    return self._answer({"error": "other bytes than announced"}, 400)
                self.hub.blobs[oid] = body
                return self._answer({})
            case "GET", ["api", "datasets" | "models" as kinds, owner, name, *revision]:
                return self._info(kinds[:-1], f"{owner}/{name}", revision)
            case "GET" | "HEAD", ["datasets", owner, name, "resolve", revision, *file]:
                return self._resolve("dataset", f"{owner}/{name}", revision, "/".join(file))
            case "GET" | "HEAD", [owner, name, "resolve", revision, *file]:
                return self._resolve("model", f"{owner}/{name}", revision, "/".join(file))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer({"error": "Invalid credentials in Authorization header"}, 401)
        match self.command, parts:
            case "GET", ["api", "whoami-v2"]:
                return self._answer({"name": "ada", "type": "user", "orgs": [{"name": "school"}]})
            case "POST", ["api", "validate-yaml"]:
                return self._answer({"errors": [], "warnings": []})
            case "POST", ["api", "repos", "create"]:
                return self._create(json.loads(body))
            case "POST", ["api", "models", owner, name, "preupload", _]:
                return self._preupload(f"{owner}/{name}", json.loads(body))
            case "POST", [_, _, "info", "lfs", "objects", "batch"]:
                return self._batch(json.loads(body))
            case "POST", ["api", "models", owner, name, "commit", _]:
                return self._commit(f"{owner}/{name}", [json.loads(line) for line in body.splitlines()])
        return self._answer({"error": f"no such address: {path}"}, 404)

    do_HEAD = do_POST = do_PUT = do_GET

    def _fault(self, faults: dict[str, list[int]], path: str) -> int | None:
        return next((coming.pop(0) for part, coming in faults.items() if part in path and coming), None)

    # Reading

    def _info(self, kind: str, name: str, revision: list[str]) -> None:
        repo = self.hub.repos.get(name)
        if repo is None or repo.kind != kind:
            return self._missing("Repo")
        if revision not in ([], ["revision", "main"], ["revision", repo.commit]):
            return self._missing("Revision")
        return self._answer(repo.info())

    def _resolve(self, kind: str, name: str, revision: str, file: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None or repo.kind != kind:
            return self._missing("Repo")
        if revision not in ("main", repo.commit) or file not in repo.files:
            return self._missing("Entry")
        content = repo.files[file]
        wanted = self.headers.get("Range", "")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        more = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": repo.commit}
        return self._send(content[start:], 206 if wanted else 200, more, self._fault(self.hub.breaks, file))

    # Pushing

    def _create(self, asked: dict) -> None:
        owner = asked.get("organization") or "ada"
        if owner not in ("ada", "school"):
            return self._answer({"error": f"You don't have the rights to create a model under {owner}"}, 403)
        name = f"{owner}/{asked['name']}"
        taken = name in self.hub.repos
        self.hub.repos.setdefault(name, Repo("model"))
        return self._answer({"url": f"{self.hub.url}/{name}", "error": "exists"}, 409 if taken else 200)

    def _preupload(self, name: str, asked: dict) -> None:
        if name not in self.hub.repos:
            return self._missing("Repo")
        large = (".safetensors", ".png", ".gif")
        modes = {file["path"]: "lfs" if file["path"].endswith(large) else "regular" for file in asked["files"]}
        files = [{"path": p, "uploadMode": mode, "shouldIgnore": False, "oid": None} for p, mode in modes.items()]
        return self._answer({"files": files})

    def _batch(self, asked: dict) -> None:
        def to_upload(oid: str) -> dict:
            return {} if oid in self.hub.blobs else {"actions": {"upload": {"href": f"{self.hub.url}/lfs/{oid}"}}}

        objects = [{**wanted, **to_upload(wanted["oid"])} for wanted in asked["objects"]]
        return self._answer({"objects": objects, "transfer": "basic"})

    def _commit(self, name: str, lines: list[dict]) -> None:
        repo = self.hub.repos[name]
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    repo.messages.append(value["summary"])
                case "file":
                    repo.files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    repo.files[value["path"]] = self.hub.blobs[value["oid"]]
        repo.commit = oid = f"{len(repo.messages):040x}"
        return self._answer({"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{name}/commit/{oid}"})

    # Answers

    def _missing(self, what: str) -> None:
        return self._answer({"error": f"{what} not found"}, 404, {"X-Error-Code": f"{what}NotFound"})

    def _answer(self, what: dict, status: int = 200, more: dict[str, str] | None = None) -> None:
        return self._send(json.dumps(what).encode(), status, {"Content-Type": "application/json", **(more or {})})

    def _send(self, content: bytes, status: int, headers: dict[str, str], breaks_after: int | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:breaks_after])
        self.close_connection = self.close_connection or breaks_after is not None
