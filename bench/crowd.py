"""Hundreds of machines at one class server: what idle ones cost, and whether anybody is refused when all come at once.

The machines are made up, their requests are those of a student's worker: a TLS connection and a websocket each, heartbeats, polls,
and the start of a shift. The class server, Prefect in it and PostgreSQL are real.
"""

import asyncio
import json
import random
import ssl
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from uuid import uuid4

import httpx
import psutil
import websockets
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_SSL_CERT_FILE, PREFECT_API_URL, temporary_settings
from websockets.asyncio.client import connect as open_socket

from bench.options import Options
from bench.report import Row, Section, at_most
from bench.school import workplace
from deployments.local.processes import free_port, tree_of
from deployments.local.stack import LocalStack
from deployments.prefect_settings import HELD, HOLD
from deployments.server.class_file import ClassFile, make
from gan_core.store.engine import connect
from gan_core.store.logins import issue
from tasks.background.shifts import POOL, impatient_client
from tasks.background.supply_shifts import SECONDS, top_up

BEAT, POLL = 30, 2.0  # seconds between two heartbeats and two polls, as a worker makes them
JOINING = 20  # machines that say hello at the same moment
PATIENCE = 120.0  # seconds until everybody must have a shift
REACH = (PREFECT_API_URL, PREFECT_API_AUTH_STRING, PREFECT_API_SSL_CERT_FILE)


@dataclass(slots=True)
class Machine:
    """One student's, as the class server sees it."""

    login: str
    client: httpx.AsyncClient
    secret: str
    hold: int
    answers: Counter[int] = field(default_factory=Counter)  # statuses
    waits: list[float] = field(default_factory=list)  # seconds that an answer to a poll that isn't held took
    started_at: float = 0.0

    async def ask(self, method: str, path: str, body: object, **headers: str) -> httpx.Response:
        answer = await self.client.request(method, f"/api{path}", json=body, headers=headers)
        self.answers[answer.status_code] += 1
        return answer

    async def beat(self) -> float:
        """A heartbeat over HTTP, as after a restart of the server; seconds until it was answered."""
        began = time.perf_counter()
        await self.ask(
            "POST", f"/work_pools/{POOL}/workers/heartbeat", {"name": self.login, "heartbeat_interval_seconds": BEAT}
        )
        return time.perf_counter() - began

    async def report(self, url: str, context: ssl.SSLContext) -> None:
        """Say hello over the websocket, then that the machine is still there."""
        async with open_socket(
            f"{url}/api/work_pools/{POOL}/workers/connect",
            ssl=context,
            subprotocols=["prefect"],  # ty: ignore[invalid-argument-type]
        ) as socket:
            await socket.send(json.dumps({"type": "auth", "token": f"{self.login}:{self.secret}"}))
            payload = {"consumer_id": str(uuid4()), "worker_name": self.login, "heartbeat_interval_seconds": BEAT}
            kind = "worker.hello.v1"
            while True:
                await socket.send(json.dumps({"type": kind, "id": str(uuid4()), "payload": payload}))
                kind = "worker.heartbeat.v1"
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT):
                        async for _ in socket:
                            pass

    async def poll(self) -> None:
        """Until there is a shift; then take it."""
        while not self.started_at:
            began = time.perf_counter()
            answer = await self.ask(
                "POST",
                f"/work_pools/{POOL}/get_scheduled_flow_runs",
                {},
                **({HOLD: str(self.hold)} if self.hold else {}),
            )
            if not self.hold:
                self.waits.append(time.perf_counter() - began)
            if answer.status_code == 200 and answer.json():
                await self.take(answer.json()[0]["flow_run"]["id"])
            else:
                await asyncio.sleep(POLL)

    async def take(self, run: str) -> None:
        for state in ("PENDING", "RUNNING"):
            answer = await self.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": state}})
            if answer.status_code not in (200, 201) or answer.json()["status"] != "ACCEPT":
                return  # somebody else was quicker
        self.started_at = time.perf_counter()


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one crowd."""

    cores: float  # that the class server and PostgreSQL kept busy while all were idle
    megabytes: float  # of both
    connections: int
    refused: int  # requests
    polls: Sequence[float]
    beats: Sequence[float]  # of all at the same moment
    started: float  # seconds from the first shift that was made until all had one


@contextmanager
def class_server(logins: Sequence[str]) -> Generator[tuple[LocalStack, ClassFile, dict[str, str]]]:
    """A class as `classgan up` starts it, on this machine's own address, and the students' secrets."""
    with workplace() as folder:
        class_file = make(folder / "home", ("127.0.0.1",), "127.0.0.1", free_port(0), "")
        with LocalStack(folder / "home", folder / "outputs", class_file=class_file) as stack:
            with connect(stack.database) as connection:
                secrets = {login: issue(connection, login) for login in logins}
            yield stack, class_file, secrets


class Meter:
    """What some processes use, with those that they have started."""

    def __init__(self, *pids: int) -> None:
        self._parts = [process for pid in pids for process in tree_of(pid)]
        self._began, self._used = time.perf_counter(), self._seconds()

    @classmethod
    def of_servers(cls, stack: LocalStack) -> Self:
        roots = stack.children["prefect-server"], stack.postgres.process
        return cls(*(root.pid for root in roots if root))

    def _seconds(self) -> float:
        used = 0.0
        for process in self._parts:
            with suppress(psutil.Error):
                times = process.cpu_times()
                used += times.user + times.system
        return used

    def spent(self) -> float:
        """Seconds of processor time so far, of those that live."""
        return self._seconds() - self._used

    def cores(self) -> float:
        return self.spent() / (time.perf_counter() - self._began)

    def megabytes(self) -> float:
        """What they have for themselves: PostgreSQL's processes share most of what each seems to have."""
        total = 0
        for process in self._parts:
            with suppress(psutil.Error):
                total += process.memory_full_info().uss
        return total / 1e6


async def crowd(
    stack: LocalStack, class_file: ClassFile, secrets: dict[str, str], hold: int, seconds: float
) -> Figures:
    """All these machines: idle for so long, then reporting at the same moment, then each with a shift."""
    context = ssl.create_default_context(cafile=str(stack.home / "class.pem"))
    url = class_file.local_server
    async with AsyncExitStack() as stay, asyncio.TaskGroup() as lives:
        machines: list[Machine] = []
        tasks: list[asyncio.Task[None]] = []
        for number, (login, secret) in enumerate(secrets.items()):
            client = await stay.enter_async_context(
                httpx.AsyncClient(base_url=url, auth=(login, secret), verify=context, timeout=90)
            )
            machines.append(machine := Machine(login, client, secret, hold))
            tasks.append(lives.create_task(lasting(partial(machine.report, url.replace("https", "wss"), context))))
            tasks.append(lives.create_task(machine.poll()))
            if number % JOINING == 0:
                await asyncio.sleep(0.2)
        await asyncio.sleep(min(seconds, 10))  # until all have said hello
        meter = Meter.of_servers(stack)
        await asyncio.sleep(seconds)
        cores, megabytes = meter.cores(), meter.megabytes()
        polls = [wait for machine in machines for wait in machine.waits]
        beats = await asyncio.gather(*(machine.beat() for machine in machines))
        with connect(stack.database) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            ).fetchone()
        began = time.perf_counter()
        supply = lives.create_task(asyncio.to_thread(_supply, stack, began + PATIENCE, machines))
        while not all(machine.started_at for machine in machines) and time.perf_counter() < began + PATIENCE:
            await asyncio.sleep(0.1)
        await supply
        last = max((machine.started_at or time.perf_counter()) for machine in machines)
        for task in tasks:
            task.cancel()
        answers = sum((machine.answers for machine in machines), Counter[int]())
        refused = sum(count for status, count in answers.items() if status >= 300)
        return Figures(cores, megabytes, row[0] if row else 0, refused, polls, beats, last - began)


async def lasting(live: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Until it is done: a worker whose class server goes away comes again."""
    while True:
        try:
            return await live()
        except (websockets.WebSocketException, httpx.TransportError, OSError):
            await asyncio.sleep(random.uniform(1, 3))


def _supply(stack: LocalStack, until: float, machines: Sequence[Machine]) -> None:
    """Shifts as a coordinator makes them, until each machine has one."""
    environment = stack.environment()
    where: dict[Any, str] = {s: environment[s.name] for s in REACH if s.name in environment}
    with temporary_settings(where), impatient_client() as client:
        while not all(machine.started_at for machine in machines) and time.perf_counter() < until:
            top_up(client)
            time.sleep(SECONDS)


def run(options: Options) -> Section:
    sizes, seconds = ((5,), 3.0) if options.quick else ((50, 200, 500), 40.0)
    rows = []
    for size in sizes:
        before: float | None = None
        for label, hold in (("asking every 2 s", 0), ("held", HELD)):
            with class_server([f"student-{n}" for n in range(size)]) as (stack, class_file, secrets):
                found = asyncio.run(crowd(stack, class_file, secrets, hold, seconds))
            before = found.cores if before is None else before
            rows.append(
                Row(
                    label=f"{size} machines, {label}",
                    cells=(
                        f"{found.cores:.2f}", f"{found.megabytes:,.0f} MB", str(found.connections), _milliseconds(found.polls),
                        _milliseconds(found.beats), f"{found.started:.1f} s", str(found.refused),
                    ),
                    figures={"cores": found.cores, "megabytes": found.megabytes, "refused": found.refused, "started": found.started},
                    ratio=found.cores / before,
                    judgement=at_most(found.refused, 0, "refused") if hold else None,
                )
            )  # fmt: skip
    return Section(
        name="crowd",
        title="idle machines at one class server",
        columns=(
            "cores, idle",
            "memory",
            "connections",
            "a poll, p50 / p99",
            "all report at once, p50 / p99",
            "until all have a shift",
            "refused",
        ),
        ratio="cores",
        rows=tuple(rows),
        notes=(
            "Shifts are made as a coordinator makes them. *Until all have a shift*: each machine takes its run, and says that it runs.",
            "The crowd itself runs on the same cores. *Asking every 2 s* is what workers did before polls were held; they too are answered from one look at Prefect.",
        ),
    )


def _milliseconds(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "–"
    ranked = statistics.quantiles(values, n=100)
    return f"{1000 * ranked[49]:,.0f} / {1000 * ranked[98]:,.0f} ms"
