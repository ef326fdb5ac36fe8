"""Submits: proof of the lease, repeating does no harm, and what comes too late changes nothing but its verdict."""

from uuid import uuid4

import psycopg
import pytest
from poll import wait_until

from gan_core.store import student
from gan_core.store.coordinator import events, trainings, unit_queue
from gan_core.store.engine import LEAD_LOST
from gan_core.store.migrate import add_student
from gan_core.units import Measures, Verdict

MEASURES = Measures(images=16, seconds=1.0, g_loss=1.0, d_loss=2.0, d_real_accuracy=0.5, d_fake_accuracy=0.5)
PAYLOAD = bytes(100)


@pytest.fixture
def training(connection, tiny) -> int:
    """A running training with three open units; payloads have 100 bytes."""
    from gan_core.policies.sampling import cut_units

    plan = tiny.changed(lease_seconds=60)
    row = trainings.create(connection, "test", plan.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 5000, len(PAYLOAD), b"weights")
    units, position = cut_units(plan, 0, 5000)
    unit_queue.create_units(connection, row.id, 0, plan.quorum, position, units)
    return row.id


@pytest.fixture
def machine(connection):
    add_student(connection, "instructor")
    boot = uuid4()
    return student.register(connection, "desk", boot, "cpu", {}), boot


@pytest.fixture
def other(connection, machine):
    boot = uuid4()
    return student.register(connection, "laptop", boot, "cpu", {}), boot


def everything(connection) -> list:
    """All rows that a submit could touch, but for its own verdict."""
    return [
        connection.execute(query).fetchall()
        for query in (
            "SELECT id, state, lease_id, contribution_id FROM classgan.units ORDER BY id",
            "SELECT contribution_id FROM classgan.gradients ORDER BY 1",
            "SELECT id, verdict FROM classgan.contributions WHERE verdict = 'accepted' ORDER BY id",
            "SELECT iteration, images FROM classgan.trainings",
            "SELECT iteration FROM classgan.weights",
        )
    ]


def run_out(connection, lease_id: int) -> None:
    """Let a lease's time pass, as the database sees it."""
    connection.execute(
        "UPDATE classgan.leases SET leased_until = now() - interval '1 second' WHERE id = %s", (lease_id,)
    )


def test_a_finished_lease_is_accepted_and_counts_once(connection, training, machine):
    lease = student.claim(connection, *machine)
    answer = student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD)
    assert (answer.verdict, answer.reason) == (Verdict.ACCEPTED, "")
    assert student.my_credit(connection)[:2] == (1, 16)
    before = everything(connection)
    assert student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD).verdict is Verdict.DUPLICATE
    assert everything(connection) == before
    assert student.my_credit(connection)[:2] == (1, 16)


def test_a_lease_that_ran_out_goes_to_the_next_worker_and_the_first_answer_is_late(
    connection, training, machine, other
):
    first = student.claim(connection, *machine)
    run_out(connection, first.id)
    second = student.claim(connection, *other)
    assert second.units == first.units
    assert second.id > first.id
    before = everything(connection)
    answer = student.submit(connection, first.id, machine[1], MEASURES, PAYLOAD)
    assert answer.verdict is Verdict.LATE
    assert "another worker took over" in answer.reason
    assert everything(connection) == before
    assert student.submit(connection, second.id, other[1], MEASURES, PAYLOAD).verdict is Verdict.ACCEPTED


def test_an_answer_after_its_time_is_welcome_while_nobody_else_has_the_unit(connection, training, machine):
    lease = student.claim(connection, *machine)
    run_out(connection, lease.id)
    assert unit_queue.expire_leases(connection) == 1
    assert student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD).verdict is Verdict.ACCEPTED


def test_nobody_answers_for_a_foreign_lease(database, connection, training, machine, other):
    lease = student.claim(connection, *machine)
    before = everything(connection)
    for boot in (other[1], uuid4()):  # another machine, or this one after a restart
        assert student.submit(connection, lease.id, boot, MEASURES, PAYLOAD).verdict is Verdict.FOREIGN
    assert student.submit(connection, 10**9, machine[1], MEASURES, PAYLOAD).verdict is Verdict.FOREIGN
    add_student(connection, "mallory")
    with psycopg.connect(database.replace("//instructor@", "//mallory@"), autocommit=True) as theirs:
        assert student.submit(theirs, lease.id, machine[1], MEASURES, PAYLOAD).verdict is Verdict.FOREIGN
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not one of yours"):
            student.claim(theirs, *machine)
    assert everything(connection) == before


def test_an_answer_after_the_iteration_closed_changes_nothing(connection, training, machine, other):
    mine, theirs = student.claim(connection, *machine), student.claim(connection, *other)
    student.submit(connection, theirs.id, other[1], MEASURES, PAYLOAD)
    (arrival,) = unit_queue.arrivals(connection, training, 0)
    trainings.publish(connection, training, 0, 0, [arrival.id], 16, 48, b"next weights")
    before = everything(connection)
    answer = student.submit(connection, mine.id, machine[1], MEASURES, PAYLOAD)
    assert (answer.verdict, answer.reason) == (Verdict.LATE, "iteration 0 closed before this answer came")
    assert everything(connection) == before


def test_an_answer_between_counting_and_closing_is_late_and_leaves_no_tensors(connection, training, machine, other):
    """Accepted, but after the coordinator had counted: it must not look as if it had entered the weights."""
    mine, theirs = student.claim(connection, *machine), student.claim(connection, *other)
    student.submit(connection, theirs.id, other[1], MEASURES, PAYLOAD)
    counted = [a.id for a in unit_queue.arrivals(connection, training, 0)]
    student.submit(connection, mine.id, machine[1], MEASURES, PAYLOAD)
    trainings.publish(connection, training, 0, 0, counted, 16, 48, b"next weights")
    assert [a.id for a in unit_queue.arrivals(connection, training, 0)] == counted
    assert connection.execute("SELECT count(*) FROM classgan.gradients").fetchone() == (1,)
    assert connection.execute(
        "SELECT verdict FROM classgan.contributions WHERE lease_id = %s", (mine.id,)
    ).fetchone() == ("late",)
    assert student.my_credit(connection)[:2] == (2, 32)  # the work was done while its lease ran


@pytest.mark.parametrize("size", [0, 99, 101])
def test_a_payload_of_another_size_is_refused_and_its_unit_is_open_again(connection, training, machine, size):
    lease = student.claim(connection, *machine)
    answer = student.submit(connection, lease.id, machine[1], MEASURES, bytes(size))
    assert answer.verdict is Verdict.REFUSED
    assert f"payload has {size} bytes, this training's have 100" in answer.reason
    assert unit_queue.progress(connection, training, 0).open == 3
    assert connection.execute("SELECT count(*) FROM classgan.gradients").fetchone() == (0,)


def test_a_lease_given_back_is_open_at_once_and_its_answer_late(connection, training, machine):
    lease = student.claim(connection, *machine)
    student.release(connection, lease.id, machine[1], "the lid was closed")
    assert unit_queue.progress(connection, training, 0).open == 3
    assert student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD).verdict is Verdict.LATE
    assert connection.execute("SELECT message FROM classgan.workers WHERE id = %s", machine[:1]).fetchone() == (
        "the lease was given back",
    )


def test_heartbeats_keep_a_lease_and_silence_loses_it(connection, training, machine, other):
    lease = student.claim(connection, *machine)
    run_out(connection, lease.id)
    assert student.heartbeat(connection, *machine) == [lease.id]
    assert unit_queue.expire_leases(connection) == 0
    run_out(connection, lease.id)
    assert unit_queue.expire_leases(connection) == 1
    assert student.heartbeat(connection, *machine) == [lease.id]  # it slept, and nobody has taken its unit: it goes on
    assert unit_queue.progress(connection, training, 0).leased == 1
    run_out(connection, lease.id)
    assert student.claim(connection, *other).units == lease.units
    assert student.heartbeat(connection, *machine) == []


def test_a_heartbeat_waits_for_no_submit_and_takes_its_lease_for_held(connection, database, training, machine):
    """The class server writes heartbeats one after the other: one that waited would cost all the others their leases."""
    lease, kept = student.claim(connection, *machine), student.claim(connection, *machine)
    connection.execute("UPDATE classgan.leases SET leased_until = now() + interval '1 second'")
    with psycopg.connect(database) as submitting:
        submitting.execute("SELECT FROM classgan.leases WHERE id = %s FOR UPDATE", (lease.id,))
        submitting.execute("SELECT FROM classgan.workers WHERE id = %s FOR UPDATE", (machine[0],))
        connection.execute("SET statement_timeout = '10s'")
        assert student.heartbeat(connection, *machine) == [lease.id, kept.id]
        renewed = connection.execute("SELECT id FROM classgan.leases WHERE leased_until > now() + interval '5 seconds'")
        assert renewed.fetchall() == [(kept.id,)]
    assert student.heartbeat(connection, *machine) == [lease.id, kept.id]


def test_a_restarted_machine_does_not_renew_its_dead_selfs_leases(connection, training, machine):
    worker, _ = machine
    lease = student.claim(connection, *machine)
    reborn = uuid4()
    assert student.register(connection, "desk", reborn, "cpu", {}) == worker
    assert student.heartbeat(connection, worker, reborn) == []
    assert student.submit(connection, lease.id, reborn, MEASURES, PAYLOAD).verdict is Verdict.FOREIGN


def test_a_contribution_that_proves_unusable_is_taken_back(connection, training, machine, other):
    lease = student.claim(connection, *machine)
    student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD)
    (arrival,) = unit_queue.arrivals(connection, training, 0)
    unit_queue.refuse(connection, arrival.id, "generator/0.weight holds numbers that are not finite")
    assert unit_queue.arrivals(connection, training, 0) == []
    assert student.my_credit(connection)[:2] == (0, 0)
    assert student.claim(connection, *other).units == lease.units


def test_a_unit_whose_every_answer_is_unusable_is_given_up(connection, training, machine):
    """Else it would be handed out for ever."""
    for _ in range(3):
        lease = student.claim(connection, *machine)
        assert lease.units[0].ordinal == 0
        student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD)
        (arrival,) = unit_queue.arrivals(connection, training, 0)
        unit_queue.refuse(connection, arrival.id, "not finite")
    assert student.claim(connection, *machine).units[0].ordinal == 1
    assert "given up" in events.latest(connection)[-1].text


def test_publishing_twice_changes_nothing_and_out_of_turn_is_an_error(connection, training, machine):
    student.submit(connection, student.claim(connection, *machine).id, machine[1], MEASURES, PAYLOAD)
    (arrival,) = unit_queue.arrivals(connection, training, 0)
    for _ in range(2):
        trainings.publish(connection, training, 0, 0, [arrival.id], 16, 48, b"next")
    assert connection.execute("SELECT iteration FROM classgan.trainings").fetchone() == (1,)
    with pytest.raises(psycopg.Error, match="another coordinator") as refused:
        trainings.publish(connection, training, 0, 5, [arrival.id], 16, 48, b"next")
    assert refused.value.sqlstate == LEAD_LOST
    with pytest.raises(psycopg.Error, match="of term 7"):
        trainings.publish(connection, training, 7, 1, [arrival.id], 16, 48, b"next")


def test_workers_are_woken_when_there_is_work_and_the_coordinator_when_there_is_an_answer(
    database, connection, training, machine
):
    from gan_core.store.engine import wait_for_notice

    with psycopg.connect(database, autocommit=True) as ear:
        ear.execute("LISTEN classgan_submitted")
        ear.execute("LISTEN classgan_work")
        lease = student.claim(connection, *machine)
        student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD)
        assert wait_until(lambda: wait_for_notice(ear, 1), what="the coordinator's wake-up")
        lease = student.claim(connection, *machine)
        student.release(connection, lease.id, machine[1], "")
        assert wait_until(lambda: wait_for_notice(ear, 1), what="the workers' wake-up")


def test_a_machines_speed_is_what_the_databases_clock_saw(connection, training, machine):
    lease = student.claim(connection, *machine)
    connection.execute("UPDATE classgan.leases SET claimed_at = now() - interval '400 seconds'")
    student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD)  # it says 1 second
    assert connection.execute("SELECT images_per_second FROM classgan.workers").fetchone()[0] == pytest.approx(
        0.04, rel=0.05
    )


# Backup leases: overdue units are computed a second time, the first answer counts.


@pytest.fixture
def overdue(connection, training, machine, other):
    """(the slow one's lease, the backup's lease) for the only unit that is still out."""
    for _ in range(2):
        lease = student.claim(connection, *other)
        student.submit(connection, lease.id, other[1], MEASURES, PAYLOAD)
    connection.execute("UPDATE classgan.workers SET images_per_second = 1")  # 16 seconds for each unit
    slow = student.claim(connection, *machine)
    assert student.claim(connection, *other) is None  # not overdue yet
    connection.execute(
        "UPDATE classgan.leases SET claimed_at = now() - interval '80 seconds', leased_until = now() + interval '1 hour' WHERE id = %s",
        (slow.id,),
    )
    backup = student.claim(connection, *other)
    assert backup.units == slow.units
    return slow, backup


def test_an_idle_worker_backs_an_overdue_lease_up_once(connection, overdue, machine):
    third = uuid4()
    worker = student.register(connection, "third", third, "cpu", {})
    connection.execute("UPDATE classgan.workers SET images_per_second = 1")
    assert student.claim(connection, worker, third) is None
    assert "desk" in events.latest(connection)[-1].text


@pytest.mark.parametrize("first", ["slow", "backup"])
def test_the_first_answer_of_two_counts_and_the_other_keeps_its_credit(
    connection, training, overdue, machine, other, first
):
    slow, backup = (overdue[0], machine[1]), (overdue[1], other[1])
    faster, slower = (slow, backup) if first == "slow" else (backup, slow)
    assert student.submit(connection, faster[0].id, faster[1], MEASURES, PAYLOAD).verdict is Verdict.ACCEPTED
    before = everything(connection)
    answer = student.submit(connection, slower[0].id, slower[1], MEASURES, PAYLOAD)
    assert (answer.verdict, answer.reason) == (Verdict.LATE, "another worker's answer for the same units came first")
    assert everything(connection) == before
    assert unit_queue.progress(connection, training, 0).done == 3
    assert student.my_credit(connection)[:2] == (4, 64)


def test_who_lost_the_race_is_told_by_its_heartbeat(connection, overdue, machine, other):
    assert student.heartbeat(connection, *machine) == [overdue[0].id]
    student.submit(connection, overdue[1].id, other[1], MEASURES, PAYLOAD)
    assert student.heartbeat(connection, *machine) == []


def test_the_backup_keeps_the_units_when_the_slow_one_falls_silent(connection, training, overdue, machine, other):
    run_out(connection, overdue[0].id)
    assert unit_queue.expire_leases(connection) == 1
    assert unit_queue.progress(connection, training, 0).leased == 1
    assert student.submit(connection, overdue[1].id, other[1], MEASURES, PAYLOAD).verdict is Verdict.ACCEPTED


def test_units_are_open_again_when_both_are_gone(connection, training, overdue, machine, other):
    student.release(connection, overdue[1].id, other[1], "the lid was closed")
    assert unit_queue.progress(connection, training, 0).leased == 1
    run_out(connection, overdue[0].id)
    assert unit_queue.expire_leases(connection) == 1
    assert unit_queue.progress(connection, training, 0).open == 1


def test_units_that_nobody_holds_are_found_by_the_net(connection, training, machine):
    """Two leases of the same units that end in the same moment may each leave them to the other."""
    lease = student.claim(connection, *machine)
    connection.execute("UPDATE classgan.leases SET ended_at = now() WHERE id = %s", (lease.id,))
    assert unit_queue.progress(connection, training, 0).leased == 1
    unit_queue.expire_leases(connection)
    assert unit_queue.progress(connection, training, 0).leased == 0


# What the plan says about late work, and what stays on record.


def test_late_work_earns_nothing_if_the_plan_says_so_or_its_lease_had_run_out(connection, training, machine, other):
    lease = student.claim(connection, *machine)
    run_out(connection, lease.id)
    student.claim(connection, *other)
    assert student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD).verdict is Verdict.LATE
    assert student.my_credit(connection)[:2] == (0, 0)
    second = student.claim(connection, *machine)
    connection.execute("UPDATE classgan.plans SET plan = plan || '{\"credit_late\": false}'")
    trainings.publish(connection, training, 0, 0, [], 0, 48, b"next")
    assert student.submit(connection, second.id, machine[1], MEASURES, PAYLOAD).verdict is Verdict.LATE
    assert student.my_credit(connection)[:2] == (0, 0)


def test_whatever_is_beyond_the_ordinary_leaves_a_sentence(connection, training, machine, other):
    lease = student.claim(connection, *machine)
    run_out(connection, lease.id)
    student.claim(connection, *other)
    student.submit(connection, lease.id, machine[1], MEASURES, PAYLOAD)
    given = student.claim(connection, *other)
    student.release(connection, given.id, other[1], "the disk is full")
    told = [(e.kind, e.text) for e in events.latest(connection, "test")]
    assert [kind for kind, _ in told] == ["silent", "again", "late", "given back"]
    assert "instructor (desk) lost unit 0 of iteration 0: no heartbeat since" in told[0][1]
    assert told[1][1] == "instructor (laptop) took over unit 0 of iteration 0 from instructor (desk)."
    assert "did not enter the model: the lease ran out and another worker took over" in told[2][1]
    assert told[3][1] == "instructor (laptop) gave unit 1 of iteration 0 back: the disk is full."
