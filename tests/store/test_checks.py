"""Which contributions are recomputed, what is kept for it, and what follows."""

import psycopg
import pytest
from answering import PAYLOAD, streak

from gan_core.store import student
from gan_core.store.coordinator import checks, events, trainings, unit_queue
from gan_core.store.viewers import ledger
from gan_core.units import EventKind, TrainingState, Verdict

SELDOM = 2_000_000_000  # a streak after which one submit in as many is drawn


def record(connection, training, valid: bool, reason: str = "it is noise") -> int:
    """Take the next check's answer down; returns whose contribution it was."""
    waiting = checks.next_check(connection, training)
    checks.record(connection, waiting.contribution_id, valid, "" if valid else reason, {}, 0.1)
    return waiting.contribution_id


def test_a_check_gets_the_very_units_plan_and_weights_of_the_lease(connection, training, tiny, machine_of):
    ada = machine_of("ada")
    ada.work()
    lease = ada.claim()
    trainings.want_plan(connection, training, tiny.changed(batch_size=4).model_dump(mode="json"), "a test")
    assert ada.submit(lease) is Verdict.ACCEPTED
    record(connection, training, valid=True)
    trainings.change_plan(connection, training, tiny.changed(batch_size=4).model_dump(mode="json"), "batch_size")
    for iteration in range(6):
        trainings.publish(connection, training, 0, iteration, [], 0, 0, b"others")
    waiting = checks.next_check(connection, training)
    assert waiting.units == lease.units
    assert (waiting.iteration, waiting.payload, waiting.weights) == (0, PAYLOAD, b"weights 0")
    assert waiting.plan == tiny.model_dump(mode="json")
    assert (waiting.data_fingerprint, waiting.data_images) == ("data", 5000)


def test_the_first_ten_are_all_checked_then_ever_fewer_and_after_an_invalid_one_all_again(
    connection, training, machine_of
):
    ada = machine_of("ada")
    for number in range(10):
        ada.work()
        assert checks.waiting(connection, training) == 1
        record(connection, training, valid=True)
        assert streak(connection, "ada") == number + 1
    # Or those that follow might be checked as faster than the ten, if the machine was busy with something else meanwhile.
    connection.execute("UPDATE classgan.workers SET proven_speed = 1e6")
    streak(connection, "ada", to=SELDOM)
    for _ in range(20):
        ada.work()
    assert checks.waiting(connection, training) == 0
    streak(connection, "ada", to=0)
    ada.work()
    streak(connection, "ada", to=SELDOM)
    record(connection, training, valid=False)
    assert streak(connection, "ada") == 0
    ada.work()
    assert checks.waiting(connection, training) == 1


def test_another_machine_of_the_same_student_starts_where_the_student_stands(connection, training, machine_of):
    ada, second = machine_of("ada"), machine_of("ada", "laptop")
    streak(connection, "ada", to=SELDOM)
    second.work()
    assert checks.waiting(connection, training) == 0
    streak(connection, "ada", to=0)
    second.work()
    record(connection, training, valid=False)
    ada.work()
    assert checks.waiting(connection, training) == 1


def test_nobody_knows_beforehand_what_is_checked(connection, training, machine_of):
    """Not even who sets the seed of random() in their own session: the same seed, and yet one in ten."""
    machine_of("ada").work()
    streak(connection, "ada", to=10)
    submitted = "SELECT classgan.choose_check(id, lease_id, %b, NULL) FROM classgan.contributions"
    chosen = 0
    for _ in range(300):
        connection.execute("DELETE FROM classgan.checks")
        connection.execute("SELECT setseed(0.5)")
        connection.execute(submitted, (PAYLOAD,))
        chosen += checks.waiting(connection, training)
    assert 5 <= chosen <= 70  # 30 on average; beyond these bounds once in 10^8 runs


def test_an_invalid_result_earns_nothing_and_says_why(connection, training, machine_of):
    ada = machine_of("ada")
    ada.work()
    ada.work()
    assert student.my_credit(ada.connection)[:2] == (2, 32)
    contribution = record(connection, training, valid=False)
    assert student.my_credit(ada.connection)[:2] == (1, 16)
    assert connection.execute(  # it has entered the weights: a repetition after a crash must find it
        "SELECT verdict::text, reason FROM classgan.contributions WHERE id = %s", (contribution,)
    ).fetchone() == ("accepted", "invalid: it is noise")
    (row,) = ledger.workers(connection)
    assert "was recomputed and is invalid: it is noise. It earns nothing." in row.message
    assert "ada (desk) to iteration 0 was recomputed and is invalid" in events.latest(connection)[-1].text
    checks.record(connection, contribution, True, "", {}, 0.1)  # a second answer changes nothing
    assert student.my_credit(ada.connection)[:2] == (1, 16)


def test_two_invalid_results_within_a_day_suspend_whatever_machine_they_came_from(connection, training, machine_of):
    ada, second = machine_of("ada"), machine_of("ada", "laptop")
    ada.work()
    second.work()
    record(connection, training, valid=False)
    connection.execute("UPDATE classgan.checks SET checked_at = now() - interval '25 hours' WHERE NOT valid")
    record(connection, training, valid=False)
    assert not ledger.students(connection)[0].suspended
    second.work()
    record(connection, training, valid=False, reason="half of it is missing")
    (row,) = ledger.students(connection)
    assert row.suspended.startswith("2 contributions within a day were recomputed and are invalid")
    assert "half of it is missing" in row.suspended
    assert EventKind.SUSPENDED in [event.kind for event in events.latest(connection)]
    with pytest.raises(psycopg.OperationalError):
        ada.claim()


def test_late_work_that_is_credited_is_checked_too(connection, training, machine_of):
    """Or waiting until the iteration has closed would earn credit for anything of the right size."""
    ada = machine_of("ada")
    lease = ada.claim()
    trainings.publish(connection, training, 0, 0, [], 0, 0, b"next")
    assert ada.submit(lease) is Verdict.LATE
    assert checks.next_check(connection, training).units == lease.units
    record(connection, training, valid=False)
    assert student.my_credit(ada.connection)[:2] == (0, 0)


def test_what_waits_is_bounded_and_a_flood_displaces_only_itself(connection, training, machine_of):
    ada, mallory = machine_of("ada"), machine_of("mallory")
    ada.work()
    for _ in range(30):
        mallory.work()
    assert checks.waiting(connection, training) == 16
    waiting = connection.execute(
        "SELECT login, count(*) FROM classgan.checks JOIN classgan.students AS s ON s.id = student_id GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert waiting == [("ada", 1), ("mallory", 15)]
    assert streak(connection, "mallory") == 0  # what was dropped proves nothing


def test_nothing_leaks_weights_go_once_their_checks_are_done_or_the_training_is_over(connection, training, machine_of):
    ada = machine_of("ada")
    ada.work()
    ada.work()
    for iteration in range(6):
        trainings.publish(connection, training, 0, iteration, [], 0, 0, b"others")
    kept = "SELECT array_agg(iteration ORDER BY iteration) FROM classgan.weights"
    assert connection.execute(kept).fetchone() == ([0, 4, 5, 6],)
    record(connection, training, valid=True)
    assert connection.execute(kept).fetchone() == ([0, 4, 5, 6],)
    trainings.control(connection, training, TrainingState.CANCELLED, "a test")
    assert checks.waiting(connection, training) == 0
    checks.drop_stale(connection)
    assert connection.execute(kept).fetchone() == ([4, 5, 6],)
    assert connection.execute("SELECT count(*) FROM classgan.checks WHERE payload IS NOT NULL").fetchone() == (0,)


def test_a_refused_contribution_is_not_checked_and_no_streak(connection, training, machine_of):
    machine_of("ada").work()
    (arrival,) = unit_queue.arrivals(connection, training, 0)
    unit_queue.refuse(connection, arrival.id, "it is garbage")
    assert checks.next_check(connection, training) is None
    assert streak(connection, "ada") == 0


def test_work_faster_than_ever_proven_is_told_and_checked_and_nothing_else(connection, training, machine_of):
    ada = machine_of("ada")
    ada.work()
    record(connection, training, valid=True)
    streak(connection, "ada", to=SELDOM)
    connection.execute("UPDATE classgan.workers SET proven_speed = 0.001")
    ada.work()
    assert events.latest(connection)[-1].kind is EventKind.FAST
    assert checks.waiting(connection, training) == 1
    assert student.my_credit(ada.connection)[:2] == (2, 32)
    ada.work()  # checked as well, and not told again and again
    assert [event.kind for event in events.latest(connection)].count(EventKind.FAST) == 1
    assert checks.waiting(connection, training) == 2
    record(connection, training, valid=True)
    record(connection, training, valid=True)  # proven now: never again at this speed
    connection.execute("UPDATE classgan.workers SET proven_speed = greatest(proven_speed, 1e6)")
    ada.work()
    assert checks.waiting(connection, training) == 0


def test_of_the_first_results_nobody_is_told_that_they_are_fast(connection, training, machine_of):
    """The first one takes longer, since the machine still prepares itself; all of them are checked anyway."""
    ada = machine_of("ada")
    ada.work()
    record(connection, training, valid=True)
    connection.execute("UPDATE classgan.workers SET proven_speed = 0.001")
    ada.work()
    assert checks.waiting(connection, training) == 1
    assert EventKind.FAST not in [event.kind for event in events.latest(connection)]


def test_a_plan_may_do_without(connection, training, machine_of):
    connection.execute('UPDATE classgan.plans SET plan = plan || \'{"checks": "off"}\'')
    machine_of("ada").work()
    assert checks.waiting(connection, training) == 0
