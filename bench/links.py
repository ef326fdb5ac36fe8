"""How long machines behind students' lines compute: `better`'s real bytes through lines of so many Mbit/s, to a real class server.

Shift, class server, PostgreSQL and coordinator are real. Only the computing is made up: a machine waits for each of its batches.
"""

import asyncio
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import torch

from bench.children import Child, children
from bench.crowd import class_server
from bench.measure import median
from bench.options import Options
from bench.report import Row, Section, at_least
from bench.share import busy
from bench.simulated import Work
from deployments.student.addresses import student_url
from gan_core.layout import PARTS, Vectors
from gan_core.networks.inputs import sizes_of
from gan_core.networks.models import layout_of
from gan_core.plan import Plan
from gan_core.policies.validation import edges
from gan_core.presets import preset
from gan_core.store.coordinator import trainings
from gan_core.store.engine import connect
from gan_core.units import Measures, TrainingState, WorkUnit
from gan_core.worker import shift

LINES = ((10, 50, 0.80), (20, 100, 0.90), (100, 100, 0.95))  # Mbit/s up and down; least share of the time
DELAY = 0.015  # seconds each way: 30 ms there and back
MACHINES = 2
SPEED = 500.0  # images a second that each of them would compute: a laptop's GPU
WARM, ROUNDS = 4, 3  # rounds in which lines and speeds become known, and those that are measured
PIECE = 1 << 14
TOO_SHORT = 0.005  # seconds to sleep for


class Line:
    """A student's line: a port of this machine that leads to the class server, so many bytes a second each way."""

    def __init__(self, port: int, up: float, down: float) -> None:
        self._behind, self._rates, self._free = port, (up, down), [0.0, 0.0]
        self.carried = [0, 0]  # bytes up and down

    async def open(self) -> int:
        """Returns the port."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _join(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_connection("127.0.0.1", self._behind)
        with suppress(asyncio.CancelledError):  # the class is over
            await asyncio.gather(self._pour(near, there, 0), self._pour(far, back, 1), return_exceptions=True)

    async def _pour(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: int) -> None:
        clock = asyncio.get_running_loop().time
        on_the_way = asyncio.Queue[tuple[float, bytes]](64)

        async def deliver() -> None:
            while (due := await on_the_way.get())[1]:
                await asyncio.sleep(due[0] - clock())
                sink.write(due[1])
                await sink.drain()
            sink.close()

        delivery = asyncio.create_task(deliver())
        while piece := await source.read(PIECE):
            self._free[way] = max(clock(), self._free[way]) + len(piece) / self._rates[way]
            self.carried[way] += len(piece)
            await on_the_way.put((self._free[way] + DELAY, piece))
            if (ahead := self._free[way] - clock()) > TOO_SHORT:
                await asyncio.sleep(ahead)
        await on_the_way.put((0.0, b""))
        await delivery


@contextmanager
def lines(port: int, up: float, down: float) -> Generator[tuple[list[Line], list[int]]]:
    """One for each machine, and the ports at which they begin."""
    found = [Line(port, up * 1e6 / 8, down * 1e6 / 8) for _ in range(MACHINES)]
    ports, over = Future[list[int]](), Future[None]()

    async def carry() -> None:
        ports.set_result([await line.open() for line in found])
        await asyncio.wrap_future(over)

    thread = threading.Thread(target=asyncio.run, args=(carry(),))
    thread.start()
    try:
        yield found, ports.result()
    finally:
        over.set_result(None)
        thread.join()


class Pretence:
    """Computes nothing, and takes as long: for `shift.contribute`."""

    def __init__(self, plan: Plan) -> None:
        random = torch.Generator().manual_seed(0)
        lengths = [layout_of(plan).length(part) for part in PARTS]
        # Each differs from the last few: two that are the same would count as copied.
        self._changes = cycle([Vectors(*(1e-4 * torch.randn(n, generator=random) for n in lengths)) for _ in range(4)])
        self.work: list[Work] = []

    def __call__(
        self,
        plan: Plan,
        networks: Any,
        images: Any,
        units: Sequence[WorkUnit],
        weights: Vectors,
        beat,
        more,
        see,
        enough,
    ) -> tuple[Vectors, Measures]:
        began, sizes = time.monotonic(), [size for unit in units for size in sizes_of(plan, unit.images)]
        done = batches = 0
        for size in sizes:
            time.sleep(max(0.0, began + (done + size) / SPEED - time.monotonic()))
            done, batches = done + size, batches + 1
            beat()
            if enough is not None and enough():
                break
        change = next(self._changes)
        for at in (0, *edges(batches)):
            see(at, Vectors(*(weights.part(part) + at / batches * change.part(part) for part in PARTS)))
        self.work.append(Work(0, done, began, time.monotonic()))
        told = Measures(
            images=done, seconds=time.monotonic() - began, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5
        )
        return change, told


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one kind of line."""

    busy: float  # share of the machines' time in which they compute
    seconds: float  # a round
    up: float  # MB a round and machine
    down: float


def plan_of(quick: bool) -> Plan:
    plan = preset("better").changed(data="digits", channels=1, mirror=False, evaluate_interval=0)
    return plan.changed(generator_width=16, discriminator_width=16) if quick else plan


def measured(server: Any, name: str, plan: Plan, up: float, down: float, warm: int, rounds: int) -> Figures:
    stack, class_file, secrets = server
    pretence, stop = Pretence(plan), threading.Event()
    pem, port = stack.home / "class.pem", urlsplit(class_file.local_server).port
    with (
        children(("lead", stack.database, name, stack.home / "cache")) as (leader,),
        lines(port, up, down) as (wires, ports),
        patch.object(shift, "contribute", pretence),
    ):
        leader.ask(plan.model_dump_json())
        shifts = [
            shift.Shift(
                student_url(f"https://127.0.0.1:{here}", pem, login, secret),
                f"{login}-{name}",
                "cpu",
                stack.home / "cache",
                should_stop=stop.is_set,
            )
            for here, (login, secret) in zip(ports, secrets.items(), strict=True)
        ]
        threads = [threading.Thread(target=one.run) for one in shifts]
        for thread in threads:
            thread.start()
        try:
            leader.ask("open")
            for _ in range(warm):
                leader.ask("turn")
            before, began = [list(wire.carried) for wire in wires], time.monotonic()
            taken = [turn(leader) for _ in range(rounds)]
            ended, after = time.monotonic(), [list(wire.carried) for wire in wires]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            with connect(stack.database) as connection:  # or the next case's machines would work for it
                training = trainings.get(connection, name)
                trainings.control(connection, training.id, TrainingState.CANCELLED, "the benchmark", "measured")
    sent, fetched = (sum(a[way] - b[way] for a, b in zip(after, before, strict=True)) / 1e6 for way in range(2))
    return Figures(
        busy(pretence.work, MACHINES, began, ended),
        median(taken),
        sent / MACHINES / rounds,
        fetched / MACHINES / rounds,
    )


def turn(leader: Child) -> float:
    answer = leader.ask("turn")
    return answer["ended"] - answer["started"]


def run(options: Options) -> Section:
    rows, plan = [], plan_of(options.quick)
    logins = [f"student-{n}" for n in range(MACHINES)]
    with class_server(logins) as server:
        for up, down, least in ((1_000, 1_000, None), *LINES):
            found = measured(
                server, f"line-{up}-{down}", plan, up, down, *((1, 1) if options.quick else (WARM, ROUNDS))
            )
            rows.append(
                _row(f"{up}/{down} Mbit/s" if least else "a fast line", found, None if options.quick else least)
            )
    return Section(
        name="links",
        title=f"{MACHINES} machines that train `better` behind students' lines, 30 ms away",
        columns=("s a round", "computing", "up, a round and machine", "down"),
        ratio="computing",
        rows=tuple(rows),
        notes=(
            f"`quorum: auto` and `target_seconds: auto`; {ROUNDS} rounds, after {WARM} in which lines and speeds become known. A machine waits instead of computing, as long as one takes that computes {SPEED:g} images a second.",
            "Bytes as they pass on the line, with TLS and everything that is asked.",
        ),
    )


def _row(label: str, found: Figures, least: float | None) -> Row:
    return Row(
        label=label,
        cells=(f"{found.seconds:.1f}", f"{found.busy:.1%}", f"{found.up:.2f} MB", f"{found.down:.2f} MB"),
        figures={"busy": found.busy, "seconds": found.seconds, "up": found.up, "down": found.down},
        ratio=found.busy,
        judgement=at_least(found.busy, least) if least else None,
    )
