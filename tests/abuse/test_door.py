"""A bright and malicious student at the one door: other students' names, other machines' leases, bytes that don't fit."""

import errno
import socket
import ssl
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from answering import MEASURES, PAYLOAD, TRAIL, Machine
from doors import DoorServer, door_of
from poll import wait_until

from deployments.server import app as server
from deployments.server.app import AT_DOOR
from deployments.server.door import uploads
from deployments.server.gate import logins
from deployments.server.gate.logins import Bucket
from gan_core.errors import StoreError, StoreUnreachable
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.door import LONGEST_HOLD, PREFIX, Sent
from gan_core.units import Verdict


@pytest.fixture
def door(database: str, tmp_path: Path):
    with door_of(database, tmp_path) as server:
        server.admit("ada", "mallory")
        yield server


@pytest.fixture
def ada(connection: psycopg.Connection, tiny, door: DoorServer) -> Machine:
    """An honest machine, in a class with open units."""
    row = trainings.create(connection, "test", tiny.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 5000, len(PAYLOAD), b"weights")
    units, position = cut_units(tiny, 0, 5000, None, 150 * 16)
    unit_queue.create_units(connection, row.id, 0, 150 * 16, position, units)
    return Machine(door.url("ada"), "ada", "desk")


@pytest.fixture
def mallory(ada: Machine, door: DoorServer) -> Machine:
    return Machine(door.url("mallory"), "mallory", "desk")


def sent(boot, payload: bytes = PAYLOAD, trail: bytes = TRAIL, sha256: str = "") -> str:
    import hashlib

    sha256 = sha256 or hashlib.sha256(payload + trail).hexdigest()
    return Sent(boot=boot, measures=MEASURES, payload_bytes=len(payload), sha256=sha256).model_dump_json()


def put(client, lease: int, boot, body: bytes, first: int = 0, total: int | None = None):
    total = len(body) if total is None else total
    headers = {"content-range": f"bytes {first}-{first + len(body) - 1}/{total}"}
    return client.put(f"/uploads/{lease}", params={"boot": str(boot)}, headers=headers, content=body)


# Whose name it is


def test_nobody_comes_in_without_a_login(door, monkeypatch):
    monkeypatch.setattr(server, "FAILED_SECONDS", 0.01)
    monkeypatch.setattr(logins, "AGAIN", 0.01)
    with door.client("ada") as client:
        for auth in (None, ("ada", "guessed"), ("instructor", "guessed"), ("nobody", "")):
            for path in ("/calls/my_credit", "/wait", "/submissions/1", "/trainings/1/weights/0"):
                assert client.post(path, json={}, auth=auth).status_code == 401


def test_another_students_machine_and_lease_are_out_of_reach(ada, mallory, door, connection):
    lease = ada.claim()
    for attempt in (
        lambda c: student.heartbeat(c, ada.worker, ada.boot),
        lambda c: student.claim(c, ada.worker, ada.boot),
        lambda c: student.change_device(c, ada.worker, ada.boot, lease.id, "cpu", "why not"),
    ):
        with pytest.raises(StoreError, match="is not one of yours"):
            attempt(mallory.connection)
    student.release(mallory.connection, lease.id, ada.boot, "gone")
    assert student.submit(mallory.connection, lease.id, ada.boot, MEASURES, PAYLOAD).verdict is Verdict.FOREIGN
    with door.client("mallory") as client:
        assert put(client, lease.id, ada.boot, PAYLOAD).status_code == 409
        assert client.post(f"/submissions/{lease.id}", content=sent(ada.boot)).json()["verdict"] == "foreign"
    assert ada.submit(lease) is Verdict.ACCEPTED
    assert connection.execute("SELECT count(*) FROM classgan.contributions").fetchone() == (1,)


def test_a_session_of_ones_own_cant_say_whose_it_is(classroom, door):
    """Only the class server, which owns the tables, says so; the embedded PostgreSQL lets no student in anyway."""
    classroom.student_url("ada")
    with psycopg.connect(classroom.student_url("mallory"), autocommit=True) as own:
        own.execute("SELECT set_config('classgan.student', 'ada', false)")
        student.register(own, "desk", uuid4(), "cpu", {})
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT login FROM classgan.workers AS w JOIN classgan.students AS s ON s.id = w.student_id"
        ).fetchall()
    assert row == [("mallory",)]


def test_one_request_leaves_no_name_behind_for_the_next(ada, mallory, door):
    """They share connections: whoever asks after ada is themselves."""
    for _ in range(20):
        assert [row.is_me for row in student.leaderboard(ada.connection)].count(True) == 1
        assert len(student.my_machines(mallory.connection)) == 1
    with pytest.raises(StoreError, match="is not one of yours"):
        student.heartbeat(mallory.connection, ada.worker, ada.boot)


def test_a_revoked_student_is_out_at_once(ada, door, connection):
    lease = ada.claim()
    connection.execute("UPDATE classgan.students SET suspended = 'cheating' WHERE login = 'ada'")
    for attempt in (lambda: ada.claim(), lambda: ada.submit(lease)):
        with pytest.raises(StoreError, match="suspended: cheating"):
            attempt()


def test_what_is_held_open_ends_with_the_login(door, connection):
    """Whoever is suspended while they wait for work reads so at once, not after half a minute."""
    with ThreadPoolExecutor(1) as pool, door.client("ada") as client:
        heard = client.post("/wait", json={"heard": -1, "seconds": 0}).json()
        held = pool.submit(client.post, "/wait", json={"heard": heard, "seconds": LONGEST_HOLD}, timeout=60)
        wait_until(lambda: door.app._logins._students["ada"].at_door, 20, "the question")
        connection.execute("UPDATE classgan.students SET suspended = 'cheating' WHERE login = 'ada'")
        answer = held.result()
    assert answer.status_code == 401
    assert "Your login is suspended: cheating" in answer.json()["detail"]


# What may be asked


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/calls/submit", 404),
        ("/calls/upload_bytes", 404),
        ("/calls/__init__", 404),
        ("/calls/%2e%2e%2fwait", 404),
        ("/nothing", 404),
        ("/submissions/" + "9" * 5_000, 422),
        ("/submissions/-1", 422),
        ("/trainings/1/weights/99999999999", 422),
        ("/trainings/99999999999999999999/weights/0", 422),
        ("/uploads/x", 405),
        ("/uploads/..%2f..%2fclass.key", 404),
    ],
)
def test_only_what_the_door_names_can_be_asked(door, path, status):
    with door.client("mallory") as client:
        assert client.post(path, json={}).status_code == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b"null",
        b'{"worker": "x", "boot": 7}',
        b'{"more": 1}',
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"worker":1e400,"boot":"x"}',
    ],
)
def test_what_is_no_question_is_refused_in_a_sentence(door, body):
    with door.client("mallory") as client:
        answer = client.post("/calls/heartbeat", content=body)
    assert answer.status_code == 422
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"worker": 2**70, "boot": str(uuid4())},
        {"worker": -1, "boot": str(uuid4())},
        {"worker": 1, "boot": str(uuid4()), "training": 2**63, "images": -(2**63)},
    ],
)
def test_numbers_that_postgresql_has_no_room_for_harm_nobody(ada, door, arguments):
    with door.client("mallory") as client:
        assert client.post("/calls/claim", json=arguments).status_code in (403, 422)
    assert ada.claim() is not None


def test_a_text_with_a_null_byte_is_refused(door):
    home = door.door("mallory")
    with pytest.raises(StoreError):
        student.register(home, "de\0sk", uuid4(), "cpu", {})
    assert student.my_machines(home) == []


def test_a_long_question_is_not_read(door):
    with door.client("mallory") as client:
        answer = client.post("/calls/register", content=b'{"name": "' + b"x" * 200_000)
    assert answer.status_code == 413


# Bytes that don't fit


def test_an_upload_is_bound_to_its_length(mallory, door):
    lease = mallory.claim()
    with door.client("mallory") as client:
        assert put(client, lease.id, mallory.boot, PAYLOAD).status_code == 409  # nobody has asked how many are there
        client.get(f"/uploads/{lease.id}", params={"boot": str(mallory.boot)})
        most = len(PAYLOAD) + uploads.TRAIL_BYTES
        assert put(client, lease.id, mallory.boot, PAYLOAD, total=most + 1).status_code == 413
        assert put(client, lease.id, mallory.boot, PAYLOAD, first=50).status_code == 409
        assert put(client, lease.id, mallory.boot, PAYLOAD, total=10).status_code == 413  # more than was announced
        for said in ("", "bytes 0-9", "bytes a-b/c", "bytes 0-9/" + "9" * 40):
            answer = client.put(
                f"/uploads/{lease.id}?boot={mallory.boot}", headers={"content-range": said}, content=b"x" * 10
            )
            assert answer.status_code == 422, said
        assert client.get(f"/uploads/{lease.id}", params={"boot": "../../x"}).status_code == 422
    assert mallory.submit(lease) is Verdict.ACCEPTED  # nothing of it is left in the way


def test_bytes_with_another_hash_are_thrown_away(mallory, door, tmp_path):
    lease = mallory.claim()
    with door.client("mallory") as client:
        client.get(f"/uploads/{lease.id}", params={"boot": str(mallory.boot)})
        assert put(client, lease.id, mallory.boot, PAYLOAD).status_code == 204
        answer = client.post(f"/submissions/{lease.id}", content=sent(mallory.boot, sha256="0" * 64))
    assert answer.status_code == 409
    assert not list((tmp_path / "on-the-way" / "uploads").iterdir())
    assert mallory.submit(lease) is Verdict.ACCEPTED


def test_a_payload_of_another_length_is_refused_by_the_database(mallory, door):
    lease = mallory.claim()
    answer = student.submit(mallory.connection, lease.id, mallory.boot, MEASURES, PAYLOAD + b"x", TRAIL)
    assert (answer.verdict, answer.reason) == (Verdict.REFUSED, "payload has 101 bytes, this training's have 100")


def test_a_second_upload_changes_nothing(mallory, door, connection, tmp_path):
    lease = mallory.claim()
    assert mallory.submit(lease) is Verdict.ACCEPTED
    other = bytes(len(PAYLOAD) - 1) + b"\1"
    answer = student.submit(mallory.connection, lease.id, mallory.boot, MEASURES, other)
    assert answer.verdict is Verdict.DUPLICATE
    assert connection.execute("SELECT payload FROM classgan.gradients").fetchall() == [(PAYLOAD,)]
    assert not list((tmp_path / "on-the-way" / "uploads").iterdir())


def test_nobody_fills_the_disk_with_what_they_never_hand_in(mallory, door, tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "EACH", 2)
    leases = [mallory.claim() for _ in range(3)]
    with door.client("mallory") as client:
        asked = [client.get(f"/uploads/{lease.id}", params={"boot": str(mallory.boot)}).status_code for lease in leases]
        assert asked == [200, 200, 429]
        assert put(client, leases[0].id, mallory.boot, PAYLOAD).status_code == 204
        monkeypatch.setattr(uploads, "LAIN", 0.0)
        assert client.get(f"/uploads/{leases[2].id}", params={"boot": str(mallory.boot)}).status_code == 200
    assert not list((tmp_path / "on-the-way" / "uploads").iterdir())


def test_a_full_disk_is_said_and_nothing_half_written_counts(mallory, door, connection, monkeypatch):
    lease, real, full = mallory.claim(), Path.open, [True]

    def opened(path: Path, *args, **kwargs):
        if full and "uploads" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(
        StoreUnreachable, match=r"can't keep what is on its way: No space left on device\. Tell your instructor"
    ):
        mallory.submit(lease)
    assert connection.execute("SELECT count(*) FROM classgan.contributions").fetchone() == (0,)
    full.clear()
    assert mallory.submit(lease) is Verdict.ACCEPTED


def test_the_disk_keeps_a_reserve_for_the_database(mallory, door, monkeypatch):
    lease = mallory.claim()
    monkeypatch.setattr(uploads, "RESERVE", 1 << 60)
    with pytest.raises(StoreUnreachable, match=r"fewer than [0-9,]+ MB would stay free\. Tell your instructor"):
        mallory.submit(lease)


def test_what_is_handed_in_twice_at_the_same_moment_is_in_memory_once(mallory, door):
    lease = mallory.claim()
    with door.client("mallory") as client:
        client.get(f"/uploads/{lease.id}", params={"boot": str(mallory.boot)})
        put(client, lease.id, mallory.boot, PAYLOAD)
        (upload,) = door.app._door._uploads._uploads.values()
        upload.is_open = True  # by another request
        assert client.post(f"/submissions/{lease.id}", content=sent(mallory.boot)).status_code == 409
        upload.is_open = False
        assert client.post(f"/submissions/{lease.id}", content=sent(mallory.boot, trail=b"")).status_code == 200


def test_a_fault_is_answered_and_written_down_a_few_times_only(mallory, door, caplog, monkeypatch):
    """A student who finds one would fill the disk with tracebacks."""
    monkeypatch.setattr(door.app._door._notices, "after", None)
    home = door.door("mallory")
    for _ in range(30):
        with pytest.raises(StoreUnreachable, match="500 Internal Server Error"):
            home.wait(0)
    assert 0 < sum("A request of mallory's failed" in line.getMessage() for line in caplog.records) <= 20


def test_a_training_that_there_is_none_of_is_said_so(mallory):
    with pytest.raises(StoreError, match=r"refused: There is no training 99999\."):
        student.read_training(mallory.connection, 99_999)


def test_whoever_sends_a_byte_now_and_then_is_not_waited_for(mallory, door, monkeypatch):
    """A slow loris: a thousand of them would hold the class server's memory and files."""
    monkeypatch.setattr(uploads, "BYTE_SECONDS", 0.3)
    lease = mallory.claim()
    with door.client("mallory") as client:
        client.get(f"/uploads/{lease.id}", params={"boot": str(mallory.boot)})
    token = b64encode(f"mallory:{door.secrets['mallory']}".encode()).decode()
    head = (
        f"PUT {PREFIX}/uploads/{lease.id}?boot={mallory.boot} HTTP/1.1\r\nhost: class\r\nauthorization: Basic {token}\r\n"
        f"content-range: bytes 0-99/100\r\ncontent-length: 100\r\n\r\n"
    )
    with (
        socket.create_connection(("127.0.0.1", door.port)) as plain,
        ssl_of(door).wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(head.encode())
        secure.settimeout(0.1)

        def answered() -> bytes:
            try:
                secure.sendall(b"x")
                return secure.recv(4096)
            except TimeoutError:
                return b""

        assert b" 408 " in wait_until(answered, 20, "the end of its patience").partition(b"\r\n")[0]


def ssl_of(door: DoorServer) -> ssl.SSLContext:
    return door.door("mallory").trust


# Floods


def test_a_flood_is_refused_and_others_go_on(ada, door):
    """One student's requests have a limit of their own."""
    door.app._logins._students["mallory"].shifts = Bucket(rate=0.001, burst=20)  # however slow this computer is
    with door.client("mallory") as client:
        answers = [client.post("/calls/my_credit", json={}).status_code for _ in range(30)]
    assert answers == [200] * 20 + [429] * 10
    ada.work()


def test_many_requests_that_are_held_leave_room_for_others(ada, door):
    waiting = []
    token = b64encode(f"mallory:{door.secrets['mallory']}".encode()).decode()
    home = door.door("mallory")
    home.wait(0)
    body = f'{{"heard": {home._notices}, "seconds": 30}}'.encode()
    head = f"POST {PREFIX}/wait HTTP/1.1\r\nhost: class\r\nauthorization: Basic {token}\r\ncontent-length: {len(body)}\r\n\r\n"
    context = ssl_of(door)
    try:
        for _ in range(AT_DOOR + 1):
            plain = socket.create_connection(("127.0.0.1", door.port))
            waiting.append(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            waiting[-1].sendall(head.encode() + body)
        waiting[-1].settimeout(20)
        assert b" 429 " in waiting[-1].recv(4096).partition(b"\r\n")[0]
        ada.work()
    finally:
        for one in waiting:
            one.close()
