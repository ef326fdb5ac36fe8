"""The one door: what a student's machine asks of its class over HTTPS is answered as PostgreSQL itself would answer it."""

import hashlib
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from answering import MEASURES, PAYLOAD, TRAIL, Machine
from classroom import same_bits
from doors import DoorServer, door_of
from poll import wait_until
from wires import SchoolProxy, Scissors

from deployments.server.door import database as door_database
from deployments.server.door import weights
from gan_core.errors import StoreError, StoreUnreachable
from gan_core.networks.models import layout_of
from gan_core.networks.reference import train_local
from gan_core.policies.codecs import payload_size
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.door import Door
from gan_core.units import Verdict
from gan_core.worker.shift import Shift

WEIGHTS = bytes(range(256)) * 4_000  # 1 MB


@pytest.fixture
def door(database: str, tmp_path: Path):
    with door_of(database, tmp_path) as server:
        yield server


@pytest.fixture
def training(connection: psycopg.Connection, tiny) -> int:
    """A running one with 150 open units."""
    row = trainings.create(connection, "test", tiny.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 5000, len(PAYLOAD), WEIGHTS)
    units, position = cut_units(tiny, 0, 5000, None, 150 * 16)
    unit_queue.create_units(connection, row.id, 0, 150 * 16, position, units)
    return row.id


def test_a_class_behind_the_door_computes_what_one_machine_computes(classroom, tiny, digits, door):
    shifts = [
        Shift(door.url(name), name, "cpu", classroom.cache, should_stop=classroom.stop.is_set)
        for name in ("ada", "grace")
    ]
    threads = [threading.Thread(target=shift.run) for shift in shifts]
    for thread in threads:
        thread.start()
    trained = classroom.train(tiny)
    classroom.stop.set()
    for thread in threads:
        thread.join()
    assert trained.state.weights.generator.equal(train_local(tiny, digits).weights.generator)
    assert sum(shift.tally.images for shift in shifts) == tiny.iterations * tiny.quorum


def test_with_4_bits_a_number_each_machine_fetches_a_fraction_and_computes_the_same(
    classroom, tiny, digits, door, monkeypatch
):
    """All of the weights once, then what changed."""
    plan, fetched = tiny.changed(codec="int4", weights_codec="int4", iterations=6), []
    real = Door._fetch
    monkeypatch.setattr(Door, "_fetch", lambda self, wanted: fetched.append(wanted.size) or real(self, wanted))
    shift = Shift(door.url("ada"), "ada", "cpu", classroom.cache, should_stop=classroom.stop.is_set)
    thread = threading.Thread(target=shift.run)
    thread.start()
    trained = classroom.train(plan)
    classroom.stop.set()
    thread.join()
    assert same_bits(trained.state, train_local(plan, digits))
    layout = layout_of(plan)
    assert fetched == [payload_size(layout, "float16")] + 5 * [payload_size(layout, "int4")]


def test_a_change_that_doesnt_lead_to_the_weights_is_not_believed(connection, training, door):
    """Somebody's weights differ from what the class takes them for: all of them are fetched."""
    connection.execute("UPDATE classgan.weights SET change = 'a change'")
    home = door.door("ada")
    assert home.weights(training, 0, lambda change: b"made of " + change) == WEIGHTS
    connection.execute("UPDATE classgan.weights SET payload = 'made of a change', iteration = 1")
    assert home.weights(training, 1, lambda change: b"made of " + change) == b"made of a change"
    kept = {path.read_bytes() for path in (door.folder / "on-the-way" / "weights").iterdir()}
    assert kept == {WEIGHTS, b"a change", b"made of a change"}


def test_whatever_postgresql_answers_comes_through(training, connection, door):
    """Each kind of value once: numbers, times, texts, bytes, lists, nothing."""
    ada = Machine(door.url("ada"), "ada", "desk")
    home, lease = ada.connection, ada.claim()
    row = connection.execute(
        "SELECT id, leased_until, iteration, plan_version FROM classgan.leases WHERE ended_at IS NULL"
    ).fetchone()
    assert (lease.id, lease.leased_until, lease.iteration, lease.plan_version) == row
    indices = connection.execute(
        "SELECT indices FROM classgan.units WHERE lease_id = %s ORDER BY ordinal", (lease.id,)
    ).fetchall()
    assert [list(unit.indices) for unit in lease.units] == [stored for (stored,) in indices]
    assert ada.beat() == [lease.id]
    known = student.read_training(home, training, lease.plan_version)
    assert known.plan == trainings.get(connection, "test").plan
    assert student.trainings(home) == {training: "test"}
    assert student.weights(home, training, 0) == WEIGHTS
    assert student.weights(home, training, 7) is None
    assert ada.submit(lease) is Verdict.ACCEPTED
    assert ada.submit(lease) is Verdict.DUPLICATE  # its answer was lost on the way, and it asks again
    assert connection.execute("SELECT payload FROM classgan.gradients").fetchall() == [(PAYLOAD,)]
    assert student.my_credit(home)[:2] == (len(lease.units), lease.images)
    assert [machine.machine for machine in student.my_machines(home)] == ["desk"]
    assert [row.is_me for row in student.leaderboard(home)] == [True]
    before, clock, after = datetime.now(UTC), student.clock(home), datetime.now(UTC)
    assert before - timedelta(seconds=1) < clock < after + timedelta(seconds=1)
    student.be_named(home, True)
    assert connection.execute("SELECT named FROM classgan.students WHERE login = 'ada'").fetchone() == (True,)
    again = ada.claim()
    student.release(home, again.id, ada.boot, "tired")
    assert ada.beat() == []


def test_a_loss_that_is_no_number_gets_through(training, door):
    ada = Machine(door.url("ada"), "ada", "desk")
    lease = ada.claim()
    spoiled = replace(MEASURES, g_loss=float("nan"), d_loss=float("inf"))
    assert student.submit(ada.connection, lease.id, ada.boot, spoiled, PAYLOAD).verdict is Verdict.ACCEPTED


def test_postgresqls_own_words_reach_the_student(connection, door):
    home = door.door("ada")
    with pytest.raises(StoreError, match=r"refused: Worker 17 is not one of yours\."):
        student.heartbeat(home, 17, uuid4())
    connection.execute("UPDATE classgan.students SET suspended = 'copied from a neighbour' WHERE login = 'ada'")
    with pytest.raises(StoreError, match=r"Your login is suspended: copied from a neighbour\. What you earned stays"):
        student.my_credit(home)
    connection.execute("UPDATE classgan.students SET secret_hash = '' WHERE login = 'ada'")
    wait_until(lambda: "Log in" in said(home), what="the end of the login")


def said(home) -> str:
    with pytest.raises(StoreError) as refused:
        student.my_credit(home)
    return str(refused.value)


def test_whoever_waits_for_work_hears_of_it_at_once(connection, door):
    home = door.door("ada")
    home.wait(0)  # finds out how many notices there were
    woken = threading.Event()
    waiting = threading.Thread(target=lambda: (home.wait(25), woken.set()))
    waiting.start()
    wait_until(lambda: _told(connection, woken), 10, "the notice")  # again and again: the thread may not have asked yet
    waiting.join()


def _told(connection: psycopg.Connection, woken: threading.Event) -> bool:
    connection.execute("NOTIFY classgan_work")
    return woken.wait(0.05)


def test_a_notice_between_two_questions_is_not_missed(connection, door):
    home = door.door("ada")
    home.wait(0)
    seen = home._notices
    connection.execute("NOTIFY classgan_work")
    home.wait(25)
    assert home._notices == seen + 1


def test_a_hundred_machines_share_a_few_connections(training, connection, door):
    door.admit(*(f"s{n}" for n in range(10)))

    def work(number: int) -> None:
        """As a shift does it: what can't be served now is asked again."""
        link, boot = student.linked(door.url(f"s{number % 10}"), lambda: False), uuid4()
        worker = link.call(lambda c: student.register(c, f"desk{number}", boot, "cpu", {}))
        lease = link.call(lambda c: student.claim(c, worker, boot))
        assert lease is not None
        answer = link.call(lambda c: student.submit(c, lease.id, boot, MEASURES, PAYLOAD, TRAIL))
        assert answer.verdict is Verdict.ACCEPTED
        link.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    ).fetchone()
    assert row[0] <= door_database.CONNECTIONS + 2  # and one that listens, one that asks who is a student
    stored = connection.execute("SELECT verdict::text FROM classgan.contributions").fetchall()
    assert len(stored) == 100
    assert {verdict for (verdict,) in stored} <= {
        "accepted",
        "second",
    }  # some units go to two students, who aren't told


# What is cut


@contextmanager
def cut(door: DoorServer, *bytes_: int):
    """The same class through scissors."""
    scissors, straight = Scissors(door.port, *bytes_), door.port
    door.port = scissors.port
    try:
        yield
    finally:
        door.port = straight
        scissors.close()


def test_weights_that_are_cut_go_on_where_they_were(training, door, monkeypatch):
    asked: list[str] = []
    door.admit("ada")
    with cut(door, 1 << 16, 300_000, 500_000):
        home = door.door("ada")
        real = home._client.send
        monkeypatch.setattr(
            home._client,
            "send",
            lambda request, **more: (asked.append(request.headers.get("range", "")), real(request, **more))[1],
        )
        found = None
        while found is None:
            with suppress(StoreUnreachable):  # cut before the first byte
                found = home.weights(training, 0)
    assert found == WEIGHTS
    starts = [int(said.removeprefix("bytes=").removesuffix("-")) for said in asked if said]
    assert starts[-1] > 0, "nothing was cut in the middle"


def test_a_contribution_that_is_cut_goes_on_where_it_was(connection, training, door, monkeypatch):
    payload = bytes(reversed(WEIGHTS))
    connection.execute("UPDATE classgan.trainings SET payload_bytes = %s", (len(payload),))
    door.admit("ada")
    ada = Machine(door.url("ada"), "ada", "desk")
    lease = ada.claim()
    with cut(door, 700_000):
        home = door.door("ada")
        with pytest.raises(StoreUnreachable):
            home.submit(lease.id, ada.boot, MEASURES, payload, TRAIL)
        (upload,) = door.app._door._uploads._uploads.values()
        wait_until(lambda: upload.size and not upload.is_open, what="the class server's notice that it was cut")
        sent: list[str] = []
        real = home._client.send
        monkeypatch.setattr(
            home._client,
            "send",
            lambda request, **more: (sent.append(request.headers.get("content-range", "")), real(request, **more))[1],
        )
        assert home.submit(lease.id, ada.boot, MEASURES, payload, TRAIL).verdict is Verdict.ACCEPTED
    first = int(next(said for said in sent if said).removeprefix("bytes ").partition("-")[0])
    assert 0 < first < 700_000
    assert connection.execute("SELECT payload FROM classgan.gradients").fetchone() == (payload,)


def test_a_class_server_that_comes_back_takes_the_rest(connection, training, door):
    ada = Machine(door.url("ada"), "ada", "desk")
    lease, link = ada.claim(), student.linked(door.url("ada"), lambda: False)
    link.call(student.my_credit)
    door.stop()
    back = threading.Timer(1.0, door.start)
    back.start()
    answer = link.call(lambda c: student.submit(c, lease.id, ada.boot, MEASURES, PAYLOAD, TRAIL))
    back.join()
    assert answer.verdict is Verdict.ACCEPTED


def test_what_was_sent_to_a_class_server_that_died_is_sent_again(training, door):
    """Between the bytes and the word that they are whole."""
    ada = Machine(door.url("ada"), "ada", "desk")
    lease, home = ada.claim(), door.door("ada")
    real = home._ask

    def ask(method: str, path: str, **more) -> bytes:
        if path.startswith("/submissions") and home._ask is not real:
            home._ask = real
            door.stop()
            door.start()
        return real(method, path, **more)

    home._ask = ask
    with pytest.raises(StoreUnreachable, match="Nothing of it is here"):
        home.submit(lease.id, ada.boot, MEASURES, PAYLOAD, TRAIL)
    assert home.submit(lease.id, ada.boot, MEASURES, PAYLOAD, TRAIL).verdict is Verdict.ACCEPTED


def test_weights_come_from_the_database_once_and_under_their_hash(training, door, monkeypatch):
    read: list[int] = []
    real = student.weights
    monkeypatch.setattr(student, "weights", lambda c, *which: (read.append(1), real(c, *which))[1])
    fetched: list[bytes | None] = []
    doors = [door.door(f"s{n}") for n in range(8)]
    threads = [threading.Thread(target=lambda d=d: fetched.append(d.weights(training, 0))) for d in doors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetched == [WEIGHTS] * 8
    assert len(read) == 1
    sha = hashlib.sha256(WEIGHTS).hexdigest()
    with door.client("s0") as client:
        part = client.get(f"/weights/{sha}", headers={"range": "bytes=256-511"})
    assert (part.status_code, part.content) == (206, bytes(range(256)))
    assert "immutable" in part.headers["cache-control"]


def test_old_weights_dont_drive_new_ones_out(connection, training, door, monkeypatch):
    """Somebody may ask for one old version after the other."""
    monkeypatch.setattr(weights, "KEPT", 2)
    for iteration in range(1, 8):
        connection.execute(
            "INSERT INTO classgan.weights (training_id, iteration, payload) VALUES (%s, %s, %s)",
            (training, iteration, b"%d" % iteration),
        )
    home = door.door("ada")
    assert [home.weights(training, n) for n in (7, 1, 2, 3, 4, 5, 6)] == [b"7", b"1", b"2", b"3", b"4", b"5", b"6"]
    kept = {path.read_bytes() for path in (door.folder / "on-the-way" / "weights").iterdir()}
    assert kept == {b"7", b"5", b"6"}


def test_weights_that_were_changed_on_the_way_are_not_used(training, door, tmp_path):
    home = door.door("ada")
    home.weights(training, 0)
    kept = next((tmp_path / "on-the-way" / "weights").iterdir())
    kept.write_bytes(WEIGHTS[:-1] + b"\0")
    with pytest.raises(StoreUnreachable, match="came damaged"):
        home.weights(training, 0)


# Through what schools put in between


def test_a_schools_proxy_is_gone_through_and_the_certificate_still_compared(door, tmp_path, monkeypatch):
    proxy = SchoolProxy()
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert student.my_credit(door.door("ada")) == (0, 0, 0.0)
    assert proxy.asked == [f"CONNECT 127.0.0.1:{door.port}"]
    (tmp_path / "other").mkdir()
    other = DoorServer(door.database, tmp_path / "other")
    door.pem = other.pem  # what the machine was told to expect
    with pytest.raises(StoreError, match="shows a certificate that isn't your class's") as refused:
        student.my_credit(door.door("ada"))
    assert not isinstance(refused.value, StoreUnreachable)


def test_without_its_certificate_a_machine_says_what_to_do(door):
    door.url("ada")
    door.pem.unlink()
    with pytest.raises(StoreError, match="Join again: classgan join INVITE"):
        door.door("ada")
