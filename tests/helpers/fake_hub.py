"""A Hugging Face Hub on this machine, as far as pushing and pulling go: whoami, making a repository, preupload, LFS,
commits as lines of JSON, resolving files. Errors on demand.
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
class FakeHub:
    """What the hub knows and was asked."""

    url: str = ""
    owner: str = "ada"
    repos: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)  # name → the files after each commit
    messages: list[str] = field(default_factory=list)  # of commits
    blobs: dict[str, bytes] = field(default_factory=dict)  # LFS: SHA-256 → content
    asked: list[str] = field(default_factory=list)  # "METHOD path"
    fail: dict[str, list[int]] = field(default_factory=dict)  # part of a path → statuses of the next answers
    hold: threading.Event | None = None  # while it isn't set, nobody is answered

    def files(self, repo: str) -> dict[str, bytes]:
        """The newest commit's."""
        return self.repos[repo][-1]


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A running one."""
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        if hub.hold is not None:
            hub.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._handle()

    do_HEAD = do_POST = do_PUT = do_GET

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if self.hub.hold is not None:
            self.hub.hold.wait(30)
        for part, statuses in self.hub.fail.items():
            if part in path and statuses:
                return self._answer(
                    {"error": f"failing on demand; {self.headers.get('Authorization')}"}, statuses.pop(0)
                )
        parts = path.strip("/").split("/")
        match self.command, parts:
            case "PUT", ["lfs", oid]:
                if hashlib.sha256(body).hexdigest() != oid:
                    return self._answer({"error": "other bytes than announced"}, 400)
                self.hub.blobs[oid] = body
                return self._answer({})
            case "GET" | "HEAD", [owner, name, "resolve", _, *file]:
                return self._resolve(f"{owner}/{name}", "/".join(file))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer({"error": "Invalid credentials in Authorization header"}, 401)
        match self.command, parts:
            case "GET", ["api", "whoami-v2"]:
                return self._answer({"name": self.hub.owner, "type": "user", "orgs": [{"name": "school"}]})
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

    def _create(self, asked: dict) -> None:
        owner = asked.get("organization") or self.hub.owner
        if owner not in (self.hub.owner, "school"):
            return self._answer({"error": f"You don't have the rights to create a model under {owner}"}, 403)
        repo = f"{owner}/{asked['name']}"
        taken = repo in self.hub.repos
        self.hub.repos.setdefault(repo, [{}])
        return self._answer({"url": f"{self.hub.url}/{repo}", "error": "exists"}, 409 if taken else 200)

    def _preupload(self, repo: str, asked: dict) -> None:
        if repo not in self.hub.repos:
            return self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith((".safetensors", ".png", ".gif")) else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for file in asked["files"]
        ]
        return self._answer({"files": files})

    def _batch(self, asked: dict) -> None:
        objects = [
            {**o, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{o['oid']}"}}}
            if o["oid"] not in self.hub.blobs
            else dict(o)
            for o in asked["objects"]
        ]
        return self._answer({"objects": objects, "transfer": "basic"})

    def _commit(self, repo: str, lines: list[dict]) -> None:
        files = dict(self.hub.files(repo))
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    self.hub.messages.append(value["summary"])
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.hub.blobs[value["oid"]]
        self.hub.repos[repo].append(files)
        oid = f"{len(self.hub.repos[repo]):040x}"
        return self._answer({"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{repo}/commit/{oid}"})

    def _resolve(self, repo: str, file: str) -> None:
        commits = self.hub.repos.get(repo)
        if not commits:
            return self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        if file not in commits[-1]:
            return self._answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        content = commits[-1][file]
        etag = hashlib.sha256(content).hexdigest()
        return self._send(content, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": f"{len(commits):040x}"})

    def _answer(self, what: dict, status: int = 200, headers: dict[str, str] | None = None) -> None:
        return self._send(json.dumps(what).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
