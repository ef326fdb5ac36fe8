"""A class that hands in at the same moment: how long until everybody has the next weights, and what the servers need for it.

The machines compute nothing; whatever else they do is what a shift does, through TLS and the real class server. Coordinator and
PostgreSQL are real, and so are the bytes. All of it shares this machine.
"""

import json
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from bench.children import Child, children
from bench.crowd import Meter, class_server
from bench.options import Options
from bench.report import Judgement, Row, Section, at_most
from deployments.local.stack import LocalStack
from deployments.server.class_file import ClassFile
from deployments.student.addresses import student_url
from gan_core.layout import PARTS, Vectors
from gan_core.networks.models import layout_of
from gan_core.plan import Plan
from gan_core.policies.codecs import encode, payload_size
from gan_core.presets import preset
from gan_core.store.engine import connect

PROCESSES = 2  # that the machines share
ROUNDS = 2  # all machines hand in so often
STRIKE = 1.0  # seconds after a round's begin at which a part is killed
PIECE = 1 << 16
RAW = 200_000_000  # bytes that are sent to find out what bare TLS does
GIGABIT = 125_000_000  # bytes a second: the wire of a modest server


def plan_of(machines: int, quick: bool) -> Plan:
    """DCGAN at 64x64, whose weights are 12.7 MB and whose contributions are 6.4 MB: more than the preset's own 4 bits; one unit a machine."""
    small = {"generator_width": 16, "discriminator_width": 16} if quick else {}
    return preset("dcgan").changed(
        data="digits",
        channels=1,
        mirror=False,
        batch_size=16,
        images_per_unit=16,
        quorum=16 * machines,
        codec="int8",
        weights_codec="float16",
        max_units_per_lease=1,
        lease_seconds=3_600,
        deadline_floor=3_600,
        deadline_ceiling=3_600,
        checks="off",
        backup_leases=False,
        evaluate_interval=0,
        checkpoint_interval=10,
        **small,
    )


def write_payloads(plan: Plan, logins: Sequence[str], folder: Path) -> None:
    """For each machine one of its own, since copies are refused: mostly the same direction, as of an honest class."""
    layout = layout_of(plan)
    generator = torch.Generator().manual_seed(0)
    common = [torch.randn(layout.length(part), generator=generator) for part in PARTS]
    for number, login in enumerate(logins):
        own = [vector + 0.5 * torch.randn(vector.shape, generator=generator) for vector in common]
        payload = encode(Vectors(*(0.001 * vector for vector in own)), layout, plan.codec, number)
        (folder / f"{login}.payload").write_bytes(payload)


@contextmanager
def machines(class_file: ClassFile, stack: LocalStack, secrets: dict[str, str], folder: Path) -> Generator[list[Child]]:
    """All of them, in a few processes."""
    pem = stack.home / "class.pem"
    urls = [student_url(class_file.local_server, pem, login, secret) for login, secret in secrets.items()]
    with children(*(("machines", folder) for _ in range(PROCESSES))) as processes:
        for number, process in enumerate(processes):
            process.ask(json.dumps(urls[number::PROCESSES]))
        yield processes


def all_at_once(processes: Sequence[Child], verb: str) -> list[dict[str, float]]:
    for process in processes:
        process.tell(verb)
    return [row for process in processes for row in process.answer()]


def kill_class_server(stack: LocalStack) -> None:
    stack.children["prefect-server"].kill()


def kill_postgresql(stack: LocalStack) -> None:
    assert stack.postgres.process is not None
    stack.postgres.process.kill()


FAULTS: Mapping[str, Callable[[LocalStack], None]] = MappingProxyType(
    {"the class server is killed": kill_class_server, "PostgreSQL is killed": kill_postgresql}
)


@contextmanager
def looked_after(stack: LocalStack, fault: Callable[[LocalStack], None] | None) -> Generator[None]:
    """As under `classgan up`: a part that ends is started again. The fault strikes STRIKE seconds from now."""
    over = threading.Event()

    def look() -> None:
        struck = time.monotonic() + STRIKE if fault else float("inf")
        while not over.wait(0.2):
            if fault and time.monotonic() > struck:
                fault(stack)
                struck = float("inf")
            stack.look_after()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one class."""

    joined: float  # seconds until the last machine had its first weights, all of them joining at the same moment
    rows: list[dict[str, float]]  # a machine and round
    seconds: list[float]  # of each round, until the last machine has the next weights
    wire: float  # seconds that the same bytes take at GIGABIT
    bare: float  # and through bare TLS on this machine
    spent: list[float]  # processor seconds a round: of the servers, of the coordinator, of what stands for the class
    megabytes: float
    connections: int
    polls_refused: int  # or any other request of the workers


def measured(
    size: int, quick: bool, fault: Callable[[LocalStack], None] | None = None, flooded: bool = False
) -> Figures:
    plan, name = plan_of(size, quick), "rush"
    with class_server(["mallory", *(f"student-{n}" for n in range(size))]) as (stack, class_file, secrets):
        pem = stack.home / "class.pem"
        flood = student_url(class_file.local_server, pem, "mallory", secrets.pop("mallory"))
        urls = json.dumps([student_url(class_file.local_server, pem, *login) for login in secrets.items()])
        folder = stack.home / "payloads"
        folder.mkdir()
        write_payloads(plan, list(secrets), folder)
        rate = bare_tls(pem, stack.home / "class.key")
        with (
            children(("lead", stack.database, name, stack.home / "cache")) as (leader,),
            machines(class_file, stack, secrets, folder) as crowd,
            children(("workers", pem)) as (workers,),
        ):
            workers.ask(urls)
            leader.ask(plan.model_dump_json())
            leader.ask("open")
            began = time.monotonic()
            all_at_once(crowd, "join")
            joined = time.monotonic() - began
            meter, rows, seconds = Meter.of_servers(stack), list[dict[str, float]](), list[float]()
            others = [Meter(leader.process.pid), Meter(*(child.process.pid for child in (*crowd, workers)))]
            with children(*([("flood", flood)] if flooded else [])) as storms:
                for storm in storms:
                    storm.answer()
                for _ in range(ROUNDS):
                    leader.tell("turn")
                    began = time.monotonic()
                    with looked_after(stack, fault):
                        rows += all_at_once(crowd, "round")
                    seconds.append(time.monotonic() - began)
                    leader.answer()
            spent = [one.spent() / ROUNDS for one in (meter, *others)]
            megabytes, connections = meter.megabytes(), _connections(stack)
            workers.stop()
            refused = workers.answer()
        with connect(stack.database) as connection:
            row = connection.execute("SELECT octet_length(payload) FROM classgan.weights LIMIT 1").fetchone()
            _require_nothing_lost(connection, size)
        assert row is not None
        carried = size * (payload_size(layout_of(plan), plan.codec) + row[0])
        return Figures(joined, rows, seconds, carried / GIGABIT, carried / rate, spent, megabytes, connections, refused)


def _connections(stack: LocalStack) -> int:
    with connect(stack.database) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        ).fetchone()
        assert row is not None
        return row[0]


def _require_nothing_lost(connection, size: int) -> None:
    """Each machine's contribution of each round is in the weights once."""
    counted = connection.execute(
        "SELECT iteration, count(*), count(DISTINCT worker_id), bool_and(verdict = 'accepted') FROM classgan.contributions GROUP BY iteration ORDER BY iteration"
    ).fetchall()
    assert counted == [(n, size, size, True) for n in range(ROUNDS)], counted


def bare_tls(pem: Path, key: Path) -> float:
    """Bytes a second through TLS on this machine, by Python's own sockets and nothing else: both ends share its cores, as here."""
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(pem, key)
    outside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outside.load_verify_locations(pem)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def send() -> None:
            plain, _ = listening.accept()
            with inside.wrap_socket(plain, server_side=True) as secure:
                for _ in range(RAW // PIECE):
                    secure.sendall(bytes(PIECE))

        sender = threading.Thread(target=send)
        sender.start()
        plain = socket.create_connection(listening.getsockname())
        with outside.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            began, came = time.perf_counter(), 0
            while piece := secure.recv(PIECE):
                came += len(piece)
        sender.join()
        return came / (time.perf_counter() - began)


def run(options: Options) -> Section:
    rows: list[Row] = []
    usual: Figures | None = None
    sizes = (5,) if options.quick else (50, 200, 500)
    faulty = sizes[-1]
    cases = [(size, "", None, False) for size in sizes]
    cases += [(faulty, label, fault, False) for label, fault in FAULTS.items()]
    cases.append((faulty, "one student floods", None, True))
    for size, label, fault, flooded in cases:
        found = measured(size, options.quick, fault, flooded)
        if size == faulty and usual is None:
            usual = found
        rows.append(
            _row(
                f"{size} machines{label and f', {label}'}",
                found,
                _judged(found, usual, fault is not None, flooded),
                fault is not None,
            )
        )
    return Section(
        name="rush",
        title="everybody hands in 6.4 MB at the same moment, and fetches 12.7 MB",
        columns=(
            "all join at once",
            "until all have the next weights",
            "at 1 Gbit/s",
            "bare TLS",
            "a submit, p50 / p99",
            "a claim",
            "weights",
            "refused",
            "processor time",
            "memory",
            "connections",
        ),
        ratio="1 Gbit/s",
        rows=tuple(rows),
        notes=(
            f"The longer of {ROUNDS} rounds. Machines, class server, PostgreSQL and coordinator share the cores. *At 1 Gbit/s*: what the same bytes take on the wire of a modest server; *bare TLS*: through two sockets of this machine, one after the other.",
            "*Processor time* of a round: of class server and PostgreSQL, of the coordinator, and of what stands for the class, which has cores of its own elsewhere. Each machine has a Prefect worker beside it, with a websocket, heartbeats and a poll that is held.",
            "*Refused*: requests that were not served and were made again. At the end, each contribution is in the weights once, also where a part was killed in the middle of each round.",
        ),
    )


def _row(label: str, found: Figures, judgement: Judgement | None, faulty: bool) -> Row:
    longest = max(found.seconds)
    refused = found.polls_refused + sum(row["refused"] for row in found.rows)
    return Row(
        label=label,
        cells=(
            f"{found.joined:.1f} s", f"{longest:.1f} s", f"{found.wire:.1f} s", f"{found.bare:.1f} s", *(_both([row[what] for row in found.rows]) for what in ("submit", "claim", "weights")),
            f"{refused:.0f}", "–" if faulty else " / ".join(f"{seconds:.0f}" for seconds in found.spent) + " s", "–" if faulty else f"{found.megabytes:,.0f} MB", str(found.connections),
        ),
        figures={"joined": found.joined, "seconds": longest, "wire": found.wire, "bare": found.bare, "refused": refused, "servers": found.spent[0], "coordinator": found.spent[1], "class": found.spent[2], "megabytes": found.megabytes, "connections": found.connections},
        ratio=longest / found.wire,
        judgement=judgement,
    )  # fmt: skip


def _judged(found: Figures, usual: Figures | None, faulty: bool, flooded: bool) -> Judgement | None:
    """A class in which a part was killed is judged by what must be true at its end, which is required there."""
    if faulty:
        return None
    if flooded and usual:
        return at_most(_late(found) / _late(usual), 2, "× p99")
    return at_most(max(found.seconds), 1.3 * found.wire + 5, "s")


def _late(found: Figures) -> float:
    """The slowest of a hundred submits."""
    return statistics.quantiles([row["submit"] for row in found.rows], n=100)[98]


def _both(values: Sequence[float]) -> str:
    ranked = statistics.quantiles(values, n=100)
    return f"{ranked[49]:.2f} / {ranked[98]:.2f} s"
