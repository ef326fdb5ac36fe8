"""A class on many machines, each with an address of its own: from invite to accepted work, and out again.

Hosts are network namespaces, or loopback addresses where those can't be made. Everything else is real: TLS, passwords,
the class server, students' commands in processes of their own.
"""

import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from fake_hub import Repo
from kernels import cells, interrupt, opened, said
from picture_files import parquet
from poll import wait_until
from wires import SchoolProxy

from deployments.local.processes import tree_of
from deployments.prefect_settings import clean_environment
from deployments.server.certificate import make
from deployments.student.addresses import student_url
from deployments.student.doctor import Doctor, Outcome
from gan_core.errors import StoreError
from gan_core.store import logins, student
from gan_core.store.engine import connect
from gan_core.store.viewers import ledger
from gan_core.units import TrainingState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@contextmanager
def answering(host: str, certificate: Path, key: Path, heard: list[bytes]) -> Iterator[int]:
    """A server with this certificate that collects what it is told after the handshake; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with closing(socket.create_server((host, 0))) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listening.accept()
                    # It may close before it has read all.
                    with (
                        suppress(ConnectionResetError),
                        closing(plain),
                        context.wrap_socket(plain, server_side=True) as secure,
                    ):
                        heard.append(b"")
                        heard[-1] = secure.recv(1000)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        serving.join(30)


@pytest.fixture(scope="module")
def plan(tiny):
    return tiny.changed(images_per_unit=64, quorum=192, iterations=10_000, lease_seconds=10)


@pytest.fixture
def lesson(campus, plan):
    """What is trained while students come and go; the last test's, if it goes on."""
    lessons = campus.ask("SELECT name, state::text FROM classgan.trainings WHERE name LIKE 'lesson%%' ORDER BY id")
    if not lessons or lessons[-1][1] != "running":
        lessons.append((f"lesson-{len(lessons) + 1}", "queued"))
        campus.start(lessons[-1][0], plan)
    return lessons[-1][0]


@pytest.fixture(autouse=True)
def _machines_stop(campus):
    yield
    campus.stop_machines()


def test_two_students_join_and_work_and_one_is_shut_out(campus, lesson):
    ada, grace = campus.invite("ada"), campus.invite("grace")
    machine = campus.join(ada)
    campus.join(grace)
    for login in ("ada", "grace"):
        wait_until(lambda login=login: campus.images_of(login) > 0, 180, f"{login}'s first accepted unit")
    with connect(campus.stack.database) as connection:
        logins.revoke(connection, "ada", "copied homework")
    earned = campus.images_of("ada")
    wait_until(
        lambda: machine.poll() is not None, 120, "the end of ada's worker: her shift, a poll, a look at what is wrong"
    )
    assert machine.returncode == 1
    assert "the class no longer accepts 'ada'" in campus.said(ada).splitlines()[-2]
    assert "psycopg" not in campus.said(ada)  # a sentence, not where in the code it arose
    assert campus.images_of("ada") == earned > 0  # credit stays
    before = campus.iteration(lesson)
    campus.await_iteration(lesson, before + 3)  # the class goes on without her


def test_who_is_suspended_reads_why(campus):
    """The class server shuts them out like anyone without a login, and tells them the reason."""
    invite = campus.invite("hedy")
    with connect(campus.stack.database) as connection:
        (row,) = (row for row in ledger.students(connection) if row.login == "hedy")
        ledger.suspend(connection, row.id, "too loud")

        def is_shut_out() -> bool:  # the class server reads its list of logins every two seconds
            assert campus.join(invite, "--no-start").wait(60) == 1  # PostgreSQL refuses at once
            return "bad  login: " in campus.said(invite)

        wait_until(is_shut_out, 60, "the class server to shut hedy out")
        assert "Your login is suspended: too loud. What you earned stays" in campus.said(invite)
        ledger.suspend(connection, row.id, "")
    assert campus.join(invite, "--no-start").wait(60) == 0  # the invite still holds


def test_a_notebook_joins_shows_the_work_and_stops_at_the_interrupt_button(campus, lesson):
    """The kernel runs beside the class, not on a host of its own; what it starts is a machine like any other."""
    invite = campus.invite("sophie")
    home = campus.folder / "sophie's notebook"
    home.mkdir()
    env = {**clean_environment(), "CLASSGAN_HOME": str(home / "kept"), "CLASSGAN_THREADS": "1"}
    with opened("student_colab.ipynb", home, env, INVITE=invite.line) as notebook, ThreadPoolExecutor(1) as reader:
        (joining, join), (looking, look), (stopping, stop) = cells(notebook)
        busy = reader.submit(notebook.execute_cell, join, joining)
        wait_until(lambda: campus.images_of("sophie") or busy.done(), 170, "the notebook's first accepted unit")
        assert not busy.done(), said(join)
        interrupt(notebook)
        busy.result(60)
        assert said(join).rstrip().endswith("This machine has stopped.")
        assert "accepted" in said(join)
        assert invite.secret not in said(join)
        for place, cell in ((looking, look), (stopping, stop)):
            notebook.execute_cell(cell, place)
        assert f"{campus.images_of('sophie'):,} images" in said(look)
        assert "This machine has stopped." in said(look)
    left = campus.ask(
        "SELECT count(*) FROM classgan.leases l JOIN classgan.workers w ON w.id = l.worker_id"
        " JOIN classgan.students s ON s.id = w.student_id WHERE s.login = %s AND l.ended_at IS NULL",
        "sophie",
    )
    assert left == [(0,)]  # the unit at hand was finished or given back


@pytest.mark.rehearsal
def test_a_fresh_machine_earns_credit_with_the_first_file_of_the_data(campus, plan):
    """As in Colab: an empty home, an invite, and a data set on the hub of which only a part has come so far."""
    first, second = "train-0.parquet", "train-1.parquet"
    files = {first: parquet(range(128)), second: parquet(range(128, 256))}
    campus.hub.repos["ada/faces"] = Repo("dataset", files)
    for (name,) in campus.ask("SELECT name FROM classgan.trainings"):
        campus.cancel(name)
    campus.start("faces", plan.changed(data="huggingface:ada/faces", channels=3))
    wait_until(lambda: campus.state("faces") is TrainingState.RUNNING, 120, "the training's start")
    campus.hub.hold[second] = gate = threading.Event()
    try:
        campus.join(campus.invite("dorothy"))
        earned = "SELECT sum(c.images) FROM classgan.contributions AS c JOIN classgan.trainings AS t ON t.id = c.training_id WHERE t.name = 'faces' AND c.verdict = 'accepted'"
        wait_until(lambda: campus.ask(earned)[0][0], 180, "dorothy's first accepted unit, from the invite on")
        home = campus.folder / "dorothy's machine"
        assert list(home.rglob(first))
        assert not list(home.rglob(second))
    finally:
        gate.set()
    wait_until(lambda: list(home.rglob(second)), 60, "the second file")
    campus.await_iteration("faces", campus.iteration("faces") + 2)
    campus.cancel("faces")


# What every process of a machine runs first. The shift's finds that its device never finishes a batch, the first time.
HANGING = """
import sys, threading
from pathlib import Path

if "deployments.student.locked_process" in sys.orig_argv:
    from gan_core.worker import shift, watchdog

    hung = Path(__file__).with_name("hung")

    def contribute(*arguments):
        hung.touch()
        threading.Event().wait()

    if not hung.exists():
        shift.contribute = contribute
        watchdog.STUCK_AT_LEAST = shift.HUNG = shift.HEARTBEAT = 1
"""


def test_a_machine_whose_device_hangs_gives_its_unit_back_and_starts_a_fresh_process(campus, lesson, tmp_path):
    """Nothing ends a driver's call that doesn't return, so the shift's process ends itself, and the worker goes on."""
    (tmp_path / "sitecustomize.py").write_text(HANGING, encoding="utf-8")
    invite = campus.invite("dorothy")
    machine = campus.join(invite, CLASSGAN_DEVICE="cpu:1", PYTHONPATH=str(tmp_path))
    wait_until(lambda: campus.images_of("dorothy") > 0, 120, "dorothy's first accepted unit, in her second shift")
    ((told,),) = campus.ask("SELECT text FROM classgan.events WHERE kind = 'given back' AND text LIKE 'dorothy %%'")
    assert "gave unit" in told
    assert "back: no batch was finished for" in told
    assert "cpu:1 hangs, and nothing but the end of this process ends that." in campus.said(invite)
    assert machine.poll() is None  # the worker is still the same


def test_no_start_prepares_a_machine_that_the_ordinary_command_then_runs(campus):
    invite = campus.invite("alan")
    assert campus.join(invite, "--no-start").wait(120) == 0
    said = campus.said(invite)
    assert "prefect worker start --pool students --type gan-student --name alan-laptop" in said
    kept = next(campus.folder.glob("alan*/kept/student/settings.env"))
    assert kept.stat().st_mode & 0o077 == 0
    line = said.strip().splitlines()[-1].replace("prefect worker", f"exec '{sys.executable}' -P -m prefect worker")
    log = campus.folder / "alan.log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [*campus.network.on("alan"), "sh", "-c", line], env=clean_environment(), stdout=out, stderr=out
        )
    campus.machines.append(worker)
    wait_until(lambda: "Worker 'alan-laptop' started!" in log.read_text(encoding="utf-8"), 60, "alan's worker")
    worker.send_signal(signal.SIGINT)
    assert worker.wait(60) == 0


def test_a_pod_works_a_shift_with_its_invite_and_drains_before_it_leaves(campus):
    """What runs in a pod of the Kubernetes pool; how it is started there, tests/kubernetes shows."""
    invite, api = campus.invite("cluster"), campus.stack._api
    campus.classgan("kubernetes", "pool", "--image", "classgan:1")
    home = campus.folder / "a pod"
    home.mkdir()
    (home / "invite").write_text(f"{invite.line}\n", encoding="utf-8")
    deployment = api("GET", "/deployments/name/gradient-compute/shift-kubernetes")["id"]
    run = api("POST", f"/deployments/{deployment}/create_flow_run", {"state": {"type": "SCHEDULED"}})["id"]
    api("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "PENDING"}})  # as the pool's worker does
    said = (home / "pod.log").open("wb")
    script = "import pathlib, sys; from deployments.kubernetes.pod import work_shift; sys.exit(work_shift(sys.argv[1], '0', pathlib.Path('invite')))"
    environment = {
        **clean_environment(),
        "HOME": str(home),
        "CLASSGAN_HOME": str(home / "kept"),
        "CLASSGAN_THREADS": "1",
    }
    command = [sys.executable, "-P", "-c", script, run]
    pod = subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=home, start_new_session=True)
    campus.machines.append(pod)
    names = (
        "SELECT w.name FROM classgan.workers w JOIN classgan.students s ON s.id = student_id WHERE login = 'cluster'"
    )

    def has_come() -> bool:
        assert pod.poll() is None, (home / "pod.log").read_text(encoding="utf-8")
        return campus.ask(names) == [("cluster-0",)]

    wait_until(has_come, 90, "the pod's machine")
    assert campus.stack.run_state(run)[0] == "Running"
    pod.send_signal(signal.SIGTERM)  # as before an eviction
    assert pod.wait(60) == 0
    assert campus.stack.run_state(run)[0] == "Completed"


def test_with_another_certificate_nothing_is_sent(campus):
    """Somebody in between answers at the class's address with a key of their own."""
    theirs = campus.folder / "mallory.pem", campus.folder / "mallory.key"
    make(*theirs, [campus.network.address])
    stolen: list[bytes] = []
    with answering(campus.network.address, *theirs, stolen) as port:
        invite = campus.invite("hedy").model_copy(update={"port": port})
        assert campus.join(invite).wait(60) == 1
    assert "shows a certificate that isn't the one in the invite" in campus.said(invite)
    assert "More: classgan help check-certificate" in campus.said(invite)
    assert stolen == [b""]  # a handshake to look at the certificate, and no byte after it


def test_nobody_is_believed_without_the_right_certificate_or_secret(campus):
    invite = campus.invite("radia")
    pem, server = campus.stack.home / "class.pem", f"https://{campus.network.address}:{campus.class_file.port}"
    with student.reach(student_url(server, pem, "radia", invite.secret)) as home:
        assert student.my_credit(home) == (0, 0, 0.0)
    theirs = campus.folder / "eve.pem"
    make(theirs, campus.folder / "eve.key", [campus.network.address])
    refused = {
        "shows a certificate that isn't your class's": student_url(server, theirs, "radia", invite.secret),
        "Log in: ": student_url(server, pem, "radia", "guessed"),
    }
    for sentence, url in refused.items():
        with student.reach(url) as home, pytest.raises(StoreError, match=sentence):
            student.my_credit(home)


def test_a_machine_behind_a_schools_proxy_joins_with_the_same_certificate(campus, monkeypatch):
    """Every connection goes through it: the look at the certificate, requests, the websocket."""
    invite, pem = campus.invite("radia"), campus.folder / "behind a proxy.pem"
    proxy = SchoolProxy(campus.network.address)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    found = {finding.check: finding for finding in Doctor(invite, pem).examine()}
    proxy.close()
    for check in ("class server", "certificate", "login", "websocket", "database", "clock"):
        assert found[check].outcome is Outcome.GOOD, found[check].text
    place = f"CONNECT {campus.network.address}:{campus.class_file.port}"
    assert proxy.asked == [place] * 7


def test_one_port_is_open_and_postgresql_has_none(campus):
    """Whatever else this machine serves: of the class, others reach the class server and nothing more."""
    parts = [campus.stack.postgres.process, *campus.stack.children.values()]
    family = [process for part in parts for process in tree_of(part.pid)]
    open_to_others = set()
    for process in family:
        with suppress(psutil.NoSuchProcess):  # one of PostgreSQL's that has just ended
            open_to_others |= {
                connection.laddr.port
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN and connection.laddr.ip != "127.0.0.1"
            }
    assert open_to_others == {campus.class_file.port}
    (postgres,) = (process for process in family if process.pid == campus.stack.postgres.process.pid)
    assert not postgres.net_connections("inet")
