"""A class server that lies: a few honest answers of Prefect's, and a way to poison each of them."""

import json
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from gated import POOLS
from poll import wait_until

from deployments.local.processes import free_port
from deployments.student.worker import ENTRYPOINT

NOW = "2026-01-01T00:00:00Z"
RUN, DEPLOYMENT, FLOW, POOL, QUEUE, BLOCK = (str(uuid.uuid4()) for _ in range(6))


class Hostile:
    """A Prefect server of a few answers. `poison` may change any of them: it gets method, path and the honest answer.

    What it is told about the run, and the environments of the processes that run it, are kept.
    """

    def __init__(self, marker: Path, poison: Callable[[str, str, Any], Any]) -> None:
        self.marker, self.poison, self.port = marker, poison, free_port(0)
        self.states: list[dict] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.environments: list[dict[str, str]] = []
        self.elsewhere = ""  # where websockets are sent to
        self.worker: subprocess.Popen[bytes] | None = None
        self.deployment: dict[str, Any] = {
            "id": DEPLOYMENT,
            "created": NOW,
            "updated": NOW,
            "name": "shift",
            "flow_id": FLOW,
            "entrypoint": ENTRYPOINT,
            "path": None,
            "pull_steps": [],
            "job_variables": {},
            "parameters": {},
            "work_pool_name": "students",
        }
        self.pool: dict[str, Any] = {
            "id": POOL,
            "created": NOW,
            "updated": NOW,
            "name": "students",
            "type": POOLS["students"],
            "base_job_template": {"job_configuration": {}, "variables": {}},
            "default_queue_id": QUEUE,
            "status": "READY",
        }
        self.run: dict[str, Any] = {
            "id": RUN,
            "created": NOW,
            "updated": NOW,
            "name": "a-run",
            "flow_id": FLOW,
            "deployment_id": DEPLOYMENT,
            "state": {"id": str(uuid.uuid4()), "type": "SCHEDULED", "name": "Scheduled", "timestamp": NOW},
            "state_type": "SCHEDULED",
            "state_name": "Scheduled",
            "parameters": {"idle_seconds": 1, "max_minutes": 1},
            "job_variables": {},
            "tags": [],
            "labels": {},
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            self.asked.append(("WEBSOCKET", scope["path"], {}))
            if self.elsewhere:
                head = [(b"location", f"{self.elsewhere.replace('http', 'ws')}{scope['path']}".encode())]
                await send({"type": "websocket.http.response.start", "status": 307, "headers": head})
                await send({"type": "websocket.http.response.body", "body": b""})
            else:
                await send({"type": "websocket.close"})
        elif scope["type"] == "http":
            body = b""
            while True:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            path = scope["path"].removeprefix("/api")
            self.asked.append((scope["method"], path, headers))
            status, answer, extra = self.poisoned(scope["method"], path, json.loads(body or b"null"))
            head = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in extra.items())]
            await send({"type": "http.response.start", "status": status, "headers": head})
            await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def poisoned(self, method: str, path: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        answer = self.poison(method, path, self.honest(method, path, body))
        return answer if isinstance(answer, tuple) else (200, answer, {})

    def honest(self, method: str, path: str, body: Any) -> Any:
        if path.endswith("/set_state"):
            if body["state"]["type"] == "RUNNING":
                self.look()  # first: a test that waits for this state ends the worker as soon as it stands there
            self.states.append(body["state"])
            state = {**body["state"], "id": str(uuid.uuid4()), "timestamp": NOW, "data": None}
            self.run |= {"state": state, "state_type": state["type"], "state_name": state["name"]}
            return {"state": state, "status": "ACCEPT", "details": {"type": "accept_details"}}
        if path.endswith("/get_scheduled_flow_runs"):
            waits = self.run["state_type"] == "SCHEDULED"
            return [{"work_pool_id": POOL, "work_queue_id": QUEUE, "flow_run": self.run}] if waits else []
        known = {
            "/work_pools/students": self.pool,
            f"/deployments/{DEPLOYMENT}": self.deployment,
            f"/flow_runs/{RUN}": self.run,
            f"/flows/{FLOW}": {"id": FLOW, "created": NOW, "updated": NOW, "name": "gradient-compute", "tags": []},
            "/admin/version": "3.9.1",
            "/admin/storage": {"default_result_storage_block_id": None},
            "/artifacts/": {
                "id": str(uuid.uuid4()),
                "created": NOW,
                "updated": NOW,
                "key": "shift",
                "type": "markdown",
            },
        }
        return known.get(path, [] if method == "POST" else {})

    def look(self) -> None:
        """The environments of the worker's children, at the moment at which one says that it runs."""
        assert self.worker is not None
        for process in psutil.Process(self.worker.pid).children(recursive=True):
            with suppress(psutil.Error):
                self.environments.append(process.environ())

    @property
    def types(self) -> list[str]:
        return [state["type"] for state in self.states]

    @property
    def messages(self) -> str:
        return " ".join(str(state.get("message")) for state in self.states)


@contextmanager
def served(app: Any, port: int) -> Iterator[None]:
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="off", ws="websockets-sansio")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, 20, "the fake server")
        yield
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join()
