"""What a fresh reader of the source found when asked to break in, each kept out from then on."""

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest
import torch
from poll import wait_until

from gan_core.coordinator.round import ENOUGH, Lengths
from gan_core.errors import PayloadError
from gan_core.layout import Vectors
from gan_core.policies.sampling import cut_units
from gan_core.scheduler.survey import Rules, look
from gan_core.store import logins, student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.viewers import ledger
from gan_core.units import Measures, Verdict

PAYLOAD = bytes(100)


@pytest.fixture
def instructor(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def training(instructor, tiny) -> int:
    """A running training with three open units; payloads have 100 bytes."""
    row = trainings.create(instructor, "test", tiny.model_dump(mode="json"))
    trainings.start(instructor, row.id, "data", 5_000, len(PAYLOAD), b"weights")
    units, position = cut_units(tiny, 0, 5_000)
    unit_queue.create_units(instructor, row.id, 0, tiny.quorum, position, units)
    return row.id


@pytest.fixture
def mallory(classroom, training):
    with psycopg.connect(classroom.student_url("mallory"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def ada(classroom, training):
    with psycopg.connect(classroom.student_url("ada"), autocommit=True) as connection:
        yield connection


def enrol(connection, name: str = "desk") -> tuple[int, object]:
    boot = uuid4()
    return student.register(connection, name, boot, "cpu", {}), boot


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, math.inf, -math.inf, math.nan])
def test_a_number_that_overflows_sums_stops_neither_the_training_nor_the_grades(instructor, training, mallory, value):
    spoiled = Measures(
        images=16, seconds=value, g_loss=value, d_loss=value, d_real_accuracy=value, d_fake_accuracy=value
    )
    for _ in range(2):
        lease = student.claim(mallory, *(me := enrol(mallory)))
        assert student.submit(mallory, lease.id, me[1], spoiled, PAYLOAD).verdict is Verdict.ACCEPTED
    included = [row[0] for row in instructor.execute("SELECT id FROM classgan.contributions").fetchall()]
    trainings.publish(instructor, training, 0, 0, included, 32, 48, b"next", "")
    (row,) = ledger.history(instructor, training)
    assert all(math.isfinite(v) for v in (row.g_loss, row.d_loss, row.d_real_accuracy, row.d_fake_accuracy))
    (credit,) = (c for c in ledger.credits(instructor) if c.login == "mallory")
    assert 0 <= credit.seconds < 60  # no more than has passed


def test_an_answer_so_late_that_nobody_could_check_it_earns_nothing(instructor, training, mallory):
    me = enrol(mallory)
    lease = student.claim(mallory, *me)
    for iteration in range(trainings.KEPT_WEIGHTS):
        trainings.publish(instructor, training, 0, iteration, [], 0, 48, b"next", "")
    measures = Measures(images=16, seconds=1, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5)
    assert student.submit(mallory, lease.id, me[1], measures, PAYLOAD).verdict is Verdict.LATE
    assert student.my_credit(mallory)[1] == 0


def test_units_are_not_given_up_on_one_students_word(instructor, training, mallory, ada):
    """Three machines of one student say that the numbers were not finite; somebody else is there, too."""
    enrol(ada)
    for name in ("one", "two", "three", "one", "two"):
        me = enrol(mallory, name)
        if lease := student.claim(mallory, *me):
            student.release(mallory, lease.id, me[1], "not finite", spoiled=True)
    assert instructor.execute("SELECT count(*) FROM classgan.units WHERE state = 'stale'").fetchone() == (0,)
    assert student.claim(ada, *enrol(ada)) is not None


def test_an_open_transaction_keeps_neither_the_iteration_nor_a_revoke_waiting(instructor, training, mallory):
    me = enrol(mallory)
    mallory.execute("SET idle_in_transaction_session_timeout = 0")
    mallory.execute("BEGIN")
    assert student.claim(mallory, *me) is not None  # rows are locked from now on
    instructor.execute("SET lock_timeout = '5s'")
    logins.revoke(instructor, "mallory", "blocks everybody")
    trainings.publish(instructor, training, 0, 0, [], 0, 48, b"next", "")
    with pytest.raises(psycopg.OperationalError):
        mallory.execute("SELECT 1")
    logins.issue(instructor, "mallory")  # roles belong to the whole server: other tests want this one


@pytest.mark.slow
def test_the_coordinator_ends_idle_transactions_within_seconds(instructor, training, mallory):
    mallory.execute("SET idle_in_transaction_session_timeout = 0")
    mallory.execute("BEGIN")
    mallory.execute("SELECT 1")
    wait_until(lambda: unit_queue.end_runaway_sessions(instructor) or None, 30, "the end of the session")
    mallory.close()


def test_who_holds_units_without_a_known_speed_is_backed_up(instructor, training, mallory, ada):
    while student.claim(mallory, *enrol(mallory, f"m{uuid4().hex[:6]}")):
        pass  # everything is hers
    instructor.execute("UPDATE classgan.leases SET claimed_at = now() - interval '1 hour'")
    hers = enrol(mallory, "second machine")
    assert student.claim(mallory, *hers) is not None  # she backs herself up ...
    assert student.claim(ada, *enrol(ada)) is not None  # ... and keeps nobody else from it


def test_names_and_reasons_are_one_line_without_control_characters(instructor, training, mallory):
    me = enrol(mallory, "desk\x1b]52;c;evil\x07\nforged line")
    lease = student.claim(mallory, *me)
    student.release(mallory, lease.id, me[1], "sorry\r\n\x1b[2J", spoiled=False)
    texts = instructor.execute(
        "SELECT name || message FROM classgan.workers UNION ALL SELECT text FROM classgan.events"
    ).fetchall()
    assert texts
    for (text,) in texts:
        assert text.isprintable(), text


@pytest.mark.parametrize("hardware", [[], None, "x", 7, {"gpus": 7}, {"gpus": [7, None, {"memory_mb": "x"}]}])
def test_nonsense_about_hardware_stops_no_look_of_the_queue(instructor, training, mallory, hardware):
    student.register(mallory, "desk", uuid4(), "cuda:0", hardware)
    look(instructor, Rules())


def test_a_machine_without_a_name_is_refused(mallory):
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="A machine needs a name"):
        student.register(mallory, " \n", uuid4(), "cpu", {})


def test_tiny_contributions_by_the_hundred_have_nobody_else_refused():
    lengths, tiny, honest = Lengths(), 1e-12, Vectors(torch.ones(4), torch.ones(4))
    for _ in range(ENOUGH):
        lengths.remember("ada", {"generator": 2.0, "discriminator": 2.0})
    for _ in range(200):
        lengths.remember("mallory", {"generator": tiny, "discriminator": tiny})
    lengths.check(honest)
    exploding = Vectors(torch.full((4,), 1e3), torch.ones(4))
    with pytest.raises(PayloadError, match="more than 100 times the usual"):
        lengths.check(exploding)


def test_a_discriminator_that_learns_again_has_nobody_refused():
    """It was right about everything for a while: the usual was next to nothing, and five honest ones suspended their student."""
    lengths, again = Lengths(), Vectors(torch.ones(4), torch.full((4,), 0.0167))
    for _ in range(ENOUGH):
        lengths.remember("ada", {"generator": 2.0, "discriminator": 2.13e-5})
    with pytest.raises(
        PayloadError, match=r"its discriminator part has length 0\.0334, more than 100 times the usual 2\.13e-05"
    ):
        lengths.check(again)
    lengths.at_least = {"generator": 0.02, "discriminator": 0.01}
    lengths.check(again)
    with pytest.raises(PayloadError, match="more than 100 times the usual"):
        lengths.check(Vectors(torch.ones(4), torch.full((4,), 0.6)))


def test_who_gives_back_what_was_just_claimed_gets_nothing_for_a_while(instructor, training, mallory, ada):
    """Each lease that comes back wakes everybody and stands in the history."""
    me = enrol(mallory)
    for _ in range(50):
        if lease := student.claim(mallory, *me):
            student.release(mallory, lease.id, me[1], "no", spoiled=False)
    assert instructor.execute("SELECT count(*) FROM classgan.events WHERE kind = 'given back'").fetchone() == (10,)
    assert "10 leases were given back" in instructor.execute("SELECT message FROM classgan.workers").fetchone()[0]
    assert student.claim(ada, *enrol(ada)) is not None
    instructor.execute("UPDATE classgan.leases SET ended_at = ended_at - interval '10 minutes'")
    assert student.claim(mallory, *me) is not None


def test_a_machine_speaks_of_its_own_device_only_and_not_without_end(instructor, training, mallory, ada):
    theirs = enrol(ada)
    lease = student.claim(ada, *theirs)
    assert lease is not None
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        student.change_device(mallory, *theirs, lease.id, "abacus", "for fun")
    me = enrol(mallory)
    student.change_device(mallory, *me, lease.id, "abacus", "in the middle of somebody else's lease")
    mine = student.claim(mallory, *me)
    assert mine is not None
    for n in range(20):
        student.change_device(mallory, *me, mine.id, f"abacus {n}", f"\x1b[31m word {n}")
    told = instructor.execute("SELECT text FROM classgan.events WHERE kind = 'device'").fetchall()
    assert told == [("mallory (desk) computes on abacus 0 now.  [31m word 0.",)]


def test_a_shift_whose_run_another_names_too_is_alive_as_long_as_one_of_them_is(instructor, mallory, ada):
    run = uuid4()
    student.register(ada, "desk", uuid4(), "cpu", {}, run)
    student.register(mallory, "desk", uuid4(), "cpu", {}, run)
    instructor.execute(
        "UPDATE classgan.workers SET last_seen = now() - interval '1 hour'"
        " WHERE student_id = (SELECT id FROM classgan.students WHERE login = 'mallory')"
    )
    assert unit_queue.silent_seconds(instructor)[run] < 60


def test_many_connections_at_once_register_no_more_machines_than_one(classroom, training):
    url = classroom.student_url("mallory")

    def register(number: int) -> int:
        """Three machines over one connection: as many connections as there are threads."""
        made = 0
        with psycopg.connect(url, autocommit=True) as connection:
            for machine in range(3):
                with suppress(psycopg.errors.ProgramLimitExceeded):
                    made += enrol(connection, f"m{number}-{machine}") is not None
        return made

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(register, range(16))) == 32


def test_a_student_writes_no_programs_no_log_and_no_large_temporary_files(mallory):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        mallory.execute("DO $$ BEGIN RAISE LOG 'spam'; END $$")
    for setting in ("log_min_messages = 'debug5'", "log_min_error_statement = 'error'", "temp_file_limit = -1"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            mallory.execute(f"SET {setting}")
    mallory.execute("SET work_mem = '64kB'")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        mallory.execute(
            "SELECT sum(length(x)) FROM (SELECT repeat('x', 1000) AS x FROM generate_series(1, 200000) AS n ORDER BY md5(n::text)) AS rows"
        )
