"""A class server in a process of its own: real Prefect, logins from a file that tests change.

Run as a script it is that process; imported, it is what tests ask of it.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from poll import wait_until
from websockets.sync.client import ClientConnection, connect

from deployments.local.processes import free_port
from deployments.prefect_settings import CLIENT, POOLS, PREFECT, SERVER, job_template, prefect_file
from deployments.server.connections import GuardedProtocol

# One for all: each new one reads the certificates of the world, which takes longer than most answers.
HTTP = httpx.Client(verify=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
INNER = "only-the-gate-knows-this"
SECRETS = {name: f"the-secret-of-{name}" for name in ("instructor", "ada", "grace", "mallory", "alan")}
BUSY = 30.0  # seconds that a server may answer 503, as Prefect's own client allows it to
SHUT = (401, 403, 404)  # 404: what isn't yours isn't there
SMALL = {"generator_width": 4, "discriminator_width": 4, "batch_size": 8, "images_per_unit": 16, "quorum": 48}
SMALL |= {"iterations": 2, "latent_dim": 4, "evaluate_interval": 0, "codec": "float32"}
STUDENTS = tuple(name for name in SECRETS if name != "instructor")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Gate:
    """The server and, through it, the class as the instructor or a student sees it."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder, self.port, self.more = folder, free_port(0), more  # more: settings of the server's process
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.admit(*STUDENTS)

    def admit(self, *students: str) -> None:
        """From now on these may come in, and nobody else."""
        working = self.folder / ".students.part"
        working.write_text(json.dumps({name: sha256(SECRETS[name]) for name in students}), encoding="utf-8")
        working.replace(self.folder / "students.json")

    def admit_all(self) -> None:
        """All may come in again, and from now on they do."""
        self.admit(*STUDENTS)

        def let_in() -> bool:
            return not {401, 503} & {self.call(name, "GET", "/csrf-token").status_code for name in STUDENTS}

        wait_until(let_in, 20, "everybody's way in")

    def environment(self, **more: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "CLASSGAN_"))}
        return {**clean, **SERVER, **CLIENT, **more}

    def start(self) -> None:
        settings = {
            "PREFECT_HOME": str(self.folder / "server"),
            "PREFECT_SERVER_API_AUTH_STRING": INNER,
            "PREFECT_UI_API_URL": f"{self.url}/api",
            **self.more,
        }
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(self.port), str(self.folder / "students.json")],
                env=self.environment(**settings),
                stdout=log,
                stderr=log,
            )
        wait_until(self.is_up, 120, f"the class server; see {self.folder / 'server.log'}", every=0.2)

    def is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "server.log").read_text(encoding="utf-8")[-3000:]
        try:
            return HTTP.get(f"{self.url}/api/health").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def call(self, login: str, method: str, path: str, body: Any = None, secret: str | None = None) -> httpx.Response:
        """A request as this person; what is busy is asked again."""
        credential = (login, SECRETS[login] if secret is None else secret)

        def ask() -> httpx.Response:
            return HTTP.request(method, f"{self.url}/api{path}", json=body, auth=credential, timeout=60)

        until = time.monotonic() + BUSY
        while (answer := ask()).status_code == 503 and time.monotonic() < until:
            time.sleep(0.2)
        return answer

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As the instructor; fails if it is refused."""
        answer = self.call("instructor", method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def deploy(self) -> None:
        """Pools and deployments, made by the instructor through the gate."""
        for pool, kind in POOLS.items():
            self.ask("POST", "/work_pools/", {"name": pool, "type": kind, "base_job_template": job_template(kind)})
        self.prefect("instructor", "--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file()))

    def client_environment(self, login: str, **more: str) -> dict[str, str]:
        return self.environment(
            PREFECT_HOME=str(self.folder / f"home-{login}"),
            PREFECT_API_URL=f"{self.url}/api",
            PREFECT_API_AUTH_STRING=f"{login}:{SECRETS[login]}",
            **more,
        )

    def prefect(self, login: str, *words: str) -> str:
        """The command `prefect` as this person; fails if it does."""
        done = subprocess.run(
            [*PREFECT, *words],
            env=self.client_environment(login),
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def shift_deployment(self) -> dict[str, Any]:
        return self.ask("GET", "/deployments/name/gradient-compute/shift")

    def scheduled_shift(self, **more: Any) -> str:
        """A new shift run that nobody has taken."""
        wanted = {"state": {"type": "SCHEDULED"}, **more}
        return self.ask("POST", f"/deployments/{self.shift_deployment()['id']}/create_flow_run", wanted)["id"]

    def taken_shift(self, login: str, **more: Any) -> str:
        """A shift run that this student has taken and runs."""
        run = self.scheduled_shift(**more)
        for state in ("PENDING", "RUNNING"):
            answer = self.call(login, "POST", f"/flow_runs/{run}/set_state", {"state": {"type": state}})
            assert answer.json()["status"] == "ACCEPT", answer.text
        return run

    def state_of(self, run: str) -> str:
        return self.ask("GET", f"/flow_runs/{run}")["state_type"]

    def end(self, run: str) -> None:
        self.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}, "force": True})

    @contextmanager
    def socket(self, login: str, path: str, secret: str | None = None) -> Iterator[ClientConnection]:
        """A websocket as this person, past the login."""
        address = f"{self.url.replace('http', 'ws')}/api{path}"
        with connect(address, subprotocols=["prefect"], open_timeout=20) as socket:
            token = f"{login}:{SECRETS[login] if secret is None else secret}"
            socket.send(json.dumps({"type": "auth", "token": token}))
            assert json.loads(socket.recv(timeout=20)) == {"type": "auth_success"}
            yield socket


@contextmanager
def gate_in(folder: Path, records: dict[str, str]) -> Iterator[Gate]:
    """A running one with its pools and deployments; `records` are the settings of Prefect's database."""
    gate = Gate(folder, **records)
    try:
        gate.start()
        gate.deploy()
        yield gate
    finally:
        gate.stop()


class Service(Gate):
    """The class server with a database, and the service as each person sees it."""

    def ask_as(self, login: str, method: str, path: str, body=None, **options) -> httpx.Response:
        url = f"{self.url}/classgan/v1{path}"
        return HTTP.request(method, url, json=body, auth=(login, SECRETS[login]), timeout=60, **options)

    def ok(self, login: str, method: str, path: str, body=None, **options):
        """What is answered; fails if it is refused."""
        answer = self.ask_as(login, method, path, body, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def refused(self, status: int, login: str, method: str, path: str, body=None, **options) -> str:
        """The sentence with which it is refused."""
        answer = self.ask_as(login, method, path, body, **options)
        assert answer.status_code == status, f"{answer.status_code} {answer.text}"
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        return answer.json()["detail"]

    def submit(self, login: str, name: str, **demand) -> dict:
        return self.ok(login, "POST", "/trainings", {"name": name, "plan": SMALL, "demand": demand})


def event(name: str, resource: str, **more: Any) -> dict[str, Any]:
    """An event as a client sends it."""
    return {
        "id": str(uuid.uuid4()),
        "occurred": "2020-01-01T00:00:00Z",
        "event": name,
        "resource": {"prefect.resource.id": resource},
        **more,
    }


def serve(port: int, students: Path) -> None:
    import uvicorn
    from prefect.server.api.server import create_app

    from deployments.server.app import class_server
    from gan_core.settings import settings

    app = class_server(
        create_app(),
        instructor_hash=sha256(SECRETS["instructor"]),
        student_hashes=lambda: json.loads(students.read_text(encoding="utf-8")),
        inner_secret=INNER,
        refresh_seconds=0.5,
        database_url=settings().database_url,
    )
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        http=GuardedProtocol,
        lifespan="on",
        log_level="warning",
        ws_max_size=1_000_000,
    )


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
