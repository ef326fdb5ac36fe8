"""A bright and malicious student with a valid login tries the database. What exists is read from the catalogue, so that
whatever is added later is tried by itself.
"""

import pickle
import threading
import time
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest
from classroom import same_bits
from poll import wait_until

from gan_core.errors import StoreError
from gan_core.networks.models import layout_of
from gan_core.networks.reference import train_local
from gan_core.policies.codecs import payload_size
from gan_core.store import student
from gan_core.store.coordinator import events, unit_queue
from gan_core.store.migrate import CONNECTIONS, migrate
from gan_core.store.viewers import ledger
from gan_core.units import Measures, Verdict

DENIED = (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
OURS = "nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
MEASURES = Measures(images=16, seconds=1.0, g_loss=1.0, d_loss=2.0, d_real_accuracy=0.5, d_fake_accuracy=0.5)


@pytest.fixture
def mallory(classroom):
    """The student's own connection, as they would open it with psql."""
    migrate(classroom.url)  # a test's database is a copy, and rights on the database itself are not copied
    with psycopg.connect(classroom.student_url("mallory"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def instructor(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


def enrol(connection, name: str = "desk") -> tuple[int, object]:
    """(worker, boot) of a machine of whoever is connected."""
    boot = uuid4()
    return student.register(connection, name, boot, "cpu", {}), boot


# Reading and changing what isn't theirs


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM {}",
        "DELETE FROM {}",
        "TRUNCATE {}",
        "INSERT INTO {} DEFAULT VALUES",
        "COPY {} TO STDOUT",
        "DO $$ BEGIN LOCK TABLE {}; END $$",
        "DROP TABLE {}",
        "ALTER TABLE {} RENAME TO mine",
        "CREATE TRIGGER mine BEFORE INSERT ON {} EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
    ],
)
def test_every_table_view_and_sequence_is_shut(mallory, instructor, statement):
    relations = instructor.execute(
        "SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace"
        f" WHERE relkind IN ('r', 'v', 'm', 'S', 'p', 'f') AND {OURS}"
    ).fetchall()
    assert len(relations) > 12
    for (relation,) in relations:
        with pytest.raises(psycopg.Error) as refused:
            mallory.execute(statement.format(relation))
        assert isinstance(refused.value, (*DENIED, psycopg.errors.WrongObjectType)), relation


def test_every_function_that_is_not_for_students_is_shut(mallory, instructor):
    """Called with as many NULLs as it has arguments: the right is asked for before anything is done."""
    functions = instructor.execute(
        "SELECT format('%I.%I', nspname, proname), pronargs, has_function_privilege('mallory', p.oid, 'EXECUTE')"
        f" FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace WHERE {OURS}"
    ).fetchall()
    open_ones = {name for name, _, may in functions if may}
    assert open_ones == {
        f"student.{name}"
        for name in (
            "register",
            "change_device",
            "claim",
            "read_training",
            "trainings",
            "weights",
            "weights_change",
            "upload_bytes",
            "submit",
            "heartbeat",
            "release",
            "my_credit",
            "my_machines",
            "leaderboard",
            "be_named",
        )
    }
    for name, arguments, may in functions:
        if not may:
            with pytest.raises(DENIED):
                mallory.execute(f"SELECT {name}({', '.join(['NULL'] * arguments)})")


@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE instructor",
        "SET ROLE classgan_owner",
        "SET SESSION AUTHORIZATION instructor",
        "ALTER ROLE mallory SUPERUSER",
        "ALTER ROLE mallory CONNECTION LIMIT 1000",
        "GRANT classgan_owner TO mallory",
        "CREATE ROLE another LOGIN",
        "CREATE DATABASE mine",
        "CREATE SCHEMA mine",
        "CREATE TABLE public.mine (id int)",
        "CREATE TEMPORARY TABLE mine (id int)",
        "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION student.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE EXTENSION vector",
        "ALTER SYSTEM SET max_connections = 1",
        "COPY (SELECT 1) TO PROGRAM 'touch /tmp/executed'",
        "COPY (SELECT 1) TO '/tmp/written'",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT pg_ls_dir('.')",
        "SELECT lo_create(4711)",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT pg_advisory_lock(6775150, 1)",
        "SELECT pg_try_advisory_xact_lock(1)",
        "SELECT pg_logical_emit_message(false, 'x', 'x')",
        "SELECT pg_reload_conf()",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'instructor'",
        "SELECT passwd FROM pg_shadow",
        "SELECT rolpassword FROM pg_authid",
        "VACUUM FULL classgan.units",
        "DO $$ BEGIN PERFORM count(*) FROM classgan.units; END $$",
    ],
)
def test_nothing_makes_a_student_more_than_a_student(mallory, statement):
    with pytest.raises(psycopg.Error) as refused:
        mallory.execute(statement)
    state = refused.value.sqlstate
    assert state in ("42501", "42P01", "3F000") or "permission denied" in str(refused.value), (state, refused.value)


# Leases and work that aren't theirs


@pytest.fixture
def training(classroom, tiny, instructor) -> int:
    """A running training with three open units; payloads have 100 bytes."""
    from gan_core.policies.sampling import cut_units
    from gan_core.store.coordinator import trainings

    row = trainings.create(instructor, "test", tiny.model_dump(mode="json"))
    trainings.start(instructor, row.id, "data", 5000, 100, b"weights")
    units, position = cut_units(tiny, 0, 5000)
    unit_queue.create_units(instructor, row.id, 0, 48, position, units)
    return row.id


def test_another_students_lease_can_be_neither_used_nor_ended(classroom, training, mallory, instructor):
    with psycopg.connect(classroom.student_url("ada"), autocommit=True) as adas:
        worker, boot = enrol(adas)
        lease = student.claim(adas, worker, boot)
        assert lease is not None
        for theirs in (boot, uuid4()):  # even if the boot id has leaked
            assert student.submit(mallory, lease.id, theirs, MEASURES, bytes(100)).verdict is Verdict.FOREIGN
            student.release(mallory, lease.id, theirs, "mine now")
        for call in (lambda: student.claim(mallory, worker, boot), lambda: student.heartbeat(mallory, worker, boot)):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not one of yours"):
                call()
        assert student.heartbeat(adas, worker, boot) == [lease.id]
        assert student.submit(adas, lease.id, boot, MEASURES, bytes(100)).verdict is Verdict.ACCEPTED
    assert student.my_credit(mallory) == (0, 0, 0.0)


def test_work_without_a_lease_twice_or_of_another_size_earns_nothing(training, mallory, instructor):
    worker, boot = enrol(mallory)
    assert student.submit(mallory, 4711, boot, MEASURES, bytes(100)).verdict is Verdict.FOREIGN
    lease = student.claim(mallory, worker, boot)
    assert student.submit(mallory, lease.id, boot, MEASURES, bytes(5_000_000)).verdict is Verdict.REFUSED
    lease = student.claim(mallory, worker, boot)
    boast = Measures(images=10**9, seconds=1e9, g_loss=0, d_loss=0, d_real_accuracy=1, d_fake_accuracy=1)
    assert student.submit(mallory, lease.id, boot, boast, bytes(100)).verdict is Verdict.ACCEPTED
    assert student.submit(mallory, lease.id, boot, boast, bytes(100)).verdict is Verdict.DUPLICATE
    assert student.my_credit(mallory)[:2] == (1, 16)  # what the lease held, whatever the answer says


def test_hoarding_ends_at_three_leases(training, mallory, instructor):
    worker, boot = enrol(mallory)
    instructor.execute(  # else it would be the three units that end it
        "INSERT INTO classgan.units (training_id, iteration, ordinal, epoch, indices, images, seed)"
        " SELECT training_id, iteration, n, epoch, indices, images, seed FROM classgan.units, generate_series(3, 50) AS n WHERE ordinal = 0"
    )
    taken = [lease for _ in range(100) if (lease := student.claim(mallory, worker, boot))]
    assert len(taken) == 3
    assert not any(student.claim(mallory, worker, uuid4()) for _ in range(20))  # another start is the same machine


def test_nobody_has_hundreds_of_machines(training, mallory):
    for number in range(32):
        enrol(mallory, f"machine{number}")
    enrol(mallory, "machine0")  # one that is known starts again
    with pytest.raises(psycopg.Error, match="32 machines already"):
        enrol(mallory, "machine32")


# Stopping the class


def test_connections_are_counted_per_student(classroom, mallory, instructor):
    theirs = "SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'mallory'"
    wait_until(lambda: instructor.execute(theirs).fetchone()[0], 30, "the end of the sessions of tests before")
    mine = []
    try:
        for _ in range(CONNECTIONS - 1):  # and the fixture's
            mine.append(psycopg.connect(classroom.student_url("mallory")))
        with pytest.raises(psycopg.OperationalError, match="too many connections for role"):
            psycopg.connect(classroom.student_url("mallory"))
        with psycopg.connect(classroom.student_url("ada")):
            pass
    finally:
        for connection in mine:
            connection.close()


THOUSAND = "generate_series(1, 1000)"  # few enough to need no temporary file, whose limit would end the statement


@pytest.mark.parametrize(
    "hog",
    ["SELECT pg_sleep(3600)", f"SELECT count(*) FROM {THOUSAND}, {THOUSAND} b, {THOUSAND} c, {THOUSAND} d", "BEGIN"],
    ids=["asleep", "counting", "in a transaction"],
)
def test_who_keeps_the_server_busy_is_cut_off(classroom, mallory, instructor, hog):
    """A time-out that was set for the role is lifted in a moment; the coordinator looks by itself."""
    with psycopg.connect(classroom.student_url("ada"), autocommit=True) as honest:
        honest.execute("LISTEN classgan_work")  # idle for hours, and that is fine
        mallory.execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")

        def keep_busy() -> None:
            with suppress(psycopg.Error):
                mallory.execute(hog)

        thread = threading.Thread(target=keep_busy)
        thread.start()
        wait_until(lambda: instructor.execute("SELECT classgan.end_runaway_sessions(0.2)").fetchone()[0], 30, "the cut")
        thread.join()
        with pytest.raises(psycopg.OperationalError):
            mallory.execute("SELECT 1")
        honest.execute("SELECT 1")


def test_who_hands_in_garbage_again_and_again_is_shut_out_with_a_reason(training, mallory, instructor):
    """Refused, refused, ... suspended: sessions end, the next one is told why, credit stays, and it can be undone."""
    worker, boot = enrol(mallory)
    good = student.claim(mallory, worker, boot)
    student.submit(mallory, good.id, boot, MEASURES, bytes(100))
    for _ in range(5):
        lease = student.claim(mallory, worker, boot)
        student.submit(mallory, lease.id, boot, MEASURES, bytes(100))
        ((contribution,),) = instructor.execute("SELECT max(id) FROM classgan.contributions").fetchall()
        unit_queue.refuse(instructor, contribution, "it is garbage")
    with pytest.raises(psycopg.OperationalError):
        student.claim(mallory, worker, boot)
    with psycopg.connect(mallory.info.dsn, autocommit=True) as again:
        with pytest.raises(
            psycopg.errors.InsufficientPrivilege, match=r"5 contributions were refused within an hour.*it is garbage"
        ):
            student.claim(again, worker, boot)
        (row,) = [row for row in ledger.students(instructor) if row.login == "mallory"]
        assert row.images == 16
        ledger.suspend(instructor, row.id, "")
        assert student.my_credit(again)[:2] == (1, 16)
    assert not instructor.execute("SELECT 1 FROM classgan.units WHERE state = 'leased'").fetchone()
    assert "was suspended" in events.latest(instructor)[-1].text


@pytest.mark.slow
def test_a_suspended_students_shift_ends_at_once_and_says_why(classroom, tiny, instructor):
    """Its work goes to the others, and the training to its end."""
    plan = tiny.changed(iterations=4)
    shift = classroom.shift("mallory")
    said: list[str] = []

    def work() -> None:
        try:
            shift.run()
        except StoreError as exc:
            said.append(str(exc))

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: [row for row in ledger.students(instructor) if row.machines], 30, "mallory")
    (row,) = ledger.students(instructor)
    ledger.suspend(instructor, row.id, "copied from a neighbour")
    thread.join(30)
    assert not thread.is_alive()
    assert "Your login is suspended: copied from a neighbour. What you earned stays" in said[0]
    with classroom.working(1):
        assert classroom.train(plan).state.iteration == 4


@pytest.mark.slow
def test_a_class_trains_on_while_a_student_storms(classroom, tiny, digits, instructor):
    """Garbage of the right size, pickles, claims and notices without end: the weights are those of an honest class."""
    # Without backup leases: on a busy computer, a second honest answer of the same unit would earn credit, too.
    plan, stop = tiny.changed(iterations=12, backup_leases=False), threading.Event()
    size = payload_size(layout_of(plan), plan.codec)
    bomb = pickle.dumps({"weights": [1.0] * 100})
    junk = [bytes(size), bomb.ljust(size, b"\0"), b"\xff" * size, b"PK\x03\x04".ljust(size, b"\0")]
    url = classroom.student_url("mallory")
    tried: list[str] = []

    def storm() -> None:
        with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:  # until it is shut out
            worker, boot = enrol(connection)
            while not stop.is_set():
                connection.execute("NOTIFY classgan_work; NOTIFY classgan_submitted, 'nonsense'")
                if lease := student.claim(connection, worker, boot):
                    answer = student.submit(connection, lease.id, boot, MEASURES, junk[len(tried) % len(junk)])
                    tried.append(answer.verdict)
                time.sleep(0.01)  # or an honest machine would hardly get a unit on two cores

    thread = threading.Thread(target=storm)
    with classroom.working(2):
        thread.start()
        try:
            wait_until(
                lambda: instructor.execute(
                    "SELECT 1 FROM classgan.workers AS w JOIN classgan.students AS s ON s.id = student_id WHERE login = 'mallory'"
                ).fetchone(),
                30,
                "mallory",
            )
            trained = classroom.train(plan)
        finally:
            stop.set()
            thread.join()
    assert tried
    assert same_bits(trained.state, train_local(plan, digits))
    credit = dict(instructor.execute("SELECT login, images FROM classgan.ledger").fetchall())
    assert credit["mallory"] == 0
    assert sum(credit.values()) == 12 * 48
