"""While the instructor's machine can't keep up, two students compute the same lease unannounced, and are compared."""

import pytest
from answering import PAYLOAD, TRAIL, Machine, streak

from gan_core.store import student
from gan_core.store.coordinator import checks, trainings, unit_queue
from gan_core.units import Verdict

SELDOM = 2_000_000_000  # a streak after which one lease in as many is computed twice
MANY = 8  # contributions that wait for the instructor's machine
OTHERS = ("edsger", "barbara", "tony", "donald", "frances")


@pytest.fixture
def crew(connection, training, machine_of) -> list[Machine]:
    """Three students of eight; the instructor's machine has more to check than it manages."""
    ada, grace, alan, *others = (machine_of(login) for login in ("ada", "grace", "alan", *OTHERS))
    for _ in range(MANY):
        alan.submit(alan.claim())
    connection.execute(  # for as long as a test may take
        "UPDATE classgan.workers SET last_seen = now() + interval '1 hour' WHERE id = ANY (%s)",
        ([other.worker for other in others],),
    )
    return [ada, grace, alan]


def test_the_same_units_go_to_two_students_and_neither_is_told(crew):
    ada, grace, _ = crew
    first, second = ada.claim(), grace.claim()
    assert second.units == first.units
    assert (second.iteration, second.plan_version) == (first.iteration, first.plan_version)
    assert second.id > first.id
    assert ada.submit(first) is grace.submit(second) is Verdict.ACCEPTED
    assert ada.claim().units != first.units


def test_nobody_computes_twice_what_the_instructors_machine_can_check(connection, training, machine_of):
    ada, grace, alan, *_ = [machine_of(login) for login in ("ada", "grace", "alan", *OTHERS)]
    for _ in range(MANY - 1):
        alan.submit(alan.claim())
    assert ada.claim().units != grace.claim().units


def test_nor_in_a_small_class_nor_where_nothing_is_checked_nor_a_students_own_work(
    connection, training, crew, machine_of
):
    ada, grace, alan = crew
    lease = ada.claim()
    again = machine_of("ada", "laptop")
    assert again.claim().units != lease.units
    connection.execute(
        "UPDATE classgan.workers SET last_seen = now() - interval '1 hour' WHERE id = %s", (alan.worker,)
    )
    assert grace.claim().units != lease.units
    connection.execute("UPDATE classgan.workers SET last_seen = now()")
    connection.execute('UPDATE classgan.plans SET plan = plan || \'{"checks": "off"}\'')
    assert alan.claim().units not in (lease.units, again.claim().units)


def test_the_longer_the_streaks_the_rarer(connection, crew):
    ada, grace, _ = crew
    for login in ("ada", "grace"):
        streak(connection, login, to=SELDOM)
    adas, graces = ada.claim(), grace.claim()
    assert graces.units != adas.units
    streak(connection, "ada", to=9)  # one of the two has not proven much
    assert grace.claim().units == adas.units
    assert ada.claim().units == graces.units


def test_a_second_answer_is_credited_and_never_averaged(connection, training, crew):
    ada, grace, _ = crew
    first, second = ada.claim(), grace.claim()
    grace.submit(second)
    assert student.my_credit(grace.connection)[:2] == (1, 16)
    arrived = [arrival.id for arrival in unit_queue.arrivals(connection, training, 0)]
    assert len(arrived) == MANY
    ada.submit(first)
    assert len(unit_queue.arrivals(connection, training, 0)) == MANY + 1
    assert connection.execute(
        "SELECT login, verdict::text FROM classgan.contributions AS c JOIN classgan.workers AS w ON w.id = c.worker_id"
        " JOIN classgan.students AS s ON s.id = w.student_id WHERE login <> 'alan' ORDER BY login"
    ).fetchall() == [("ada", "accepted"), ("grace", "second")]


def test_it_goes_on_when_its_iteration_closes_and_is_compared_all_the_same(connection, training, crew):
    ada, grace, _ = crew
    first, second = ada.claim(), grace.claim()
    ada.submit(first)
    included = [arrival.id for arrival in unit_queue.arrivals(connection, training, 0)]
    trainings.publish(connection, training, 0, 0, included, 0, 0, b"next")
    assert grace.beat() == [second.id]
    assert grace.submit(second) is Verdict.ACCEPTED
    assert checks.next_pair(connection, training).units == first.units


def test_but_not_for_ever(connection, training, crew):
    """Or a machine that is never done would keep its iteration's weights for good."""
    ada, grace, _ = crew
    first, second = ada.claim(), grace.claim()
    ada.submit(first)
    for iteration in range(6):
        trainings.publish(connection, training, 0, iteration, [], 0, 0, b"others")
    assert grace.beat() == []
    assert grace.submit(second) is Verdict.LATE
    assert checks.next_pair(connection, training) is None


def test_the_first_answer_waits_for_the_second_and_then_both_are_compared(connection, training, tiny, crew):
    ada, grace, _ = crew
    first, second = ada.claim(), grace.claim()
    ada.submit(first)
    connection.execute("DELETE FROM classgan.checks WHERE trail IS NULL")  # alan's are recomputed
    assert checks.next_check(connection, training) is None
    assert checks.next_pair(connection, training) is None
    grace.submit(second)
    pair = checks.next_pair(connection, training)
    assert pair.units == first.units
    assert pair.workers == ("ada (desk)", "grace (desk)")
    assert (pair.payloads, pair.trails, pair.plan) == ((PAYLOAD,) * 2, (TRAIL,) * 2, tiny.model_dump(mode="json"))
    for contribution in pair.contribution_ids:
        checks.record(connection, contribution, True, "", {}, 0.1)
    assert streak(connection, "ada") == streak(connection, "grace") == 1
    assert checks.next_pair(connection, training) is None


@pytest.mark.parametrize("order", ["first answers", "second answers"])
def test_where_the_other_answer_never_comes_it_is_recomputed_like_any(connection, training, crew, order):
    ada, grace, _ = crew
    first, second = ada.claim(), grace.claim()
    (answering, lease), (other, lost) = [(ada, first), (grace, second)][:: 1 if order == "first answers" else -1]
    answering.submit(lease)
    connection.execute("DELETE FROM classgan.checks WHERE trail IS NULL")
    assert checks.next_check(connection, training) is None
    student.release(other.connection, lost.id, other.boot, "the shift ended")
    assert checks.next_check(connection, training).units == first.units


def test_what_two_say_differently_is_recomputed_before_anything_else(connection, training, crew):
    ada, grace, _ = crew
    first, second = ada.claim(), grace.claim()
    ada.submit(first)
    grace.submit(second)
    pair = checks.next_pair(connection, training)
    checks.dispute(connection, pair)
    assert checks.next_pair(connection, training) is None
    waiting = checks.next_check(connection, training)
    assert waiting.contribution_id == pair.contribution_ids[0]
    checks.record(connection, waiting.contribution_id, True, "", {}, 0.1)
    waiting = checks.next_check(connection, training)
    assert waiting.contribution_id == pair.contribution_ids[1]
    assert waiting.units == first.units
    checks.record(connection, waiting.contribution_id, False, "it is noise", {}, 0.1)
    assert student.my_credit(grace.connection)[:2] == (0, 0)
    assert student.my_credit(ada.connection)[:2] == (1, 16)


@pytest.mark.parametrize("trail", [b"", bytes(300_000)])
def test_without_a_trail_it_is_recomputed_in_any_case(connection, training, crew, trail):
    """Or leaving it out would be a way around."""
    ada, grace, _ = crew
    for login in ("ada", "grace"):
        first, second = ada.claim(), grace.claim()
        streak(connection, login, to=SELDOM)
    ada.submit(first)
    grace.submit(second, trail)
    waiting = checks.next_check(connection, training)
    assert waiting.worker == "grace (desk)"
    assert waiting.units == second.units


def test_a_flood_displaces_no_pair(connection, training, crew):
    ada, grace, alan = crew
    first, second = ada.claim(), grace.claim()
    ada.submit(first)
    grace.submit(second)
    for _ in range(30):
        alan.submit(alan.claim())
    assert checks.next_pair(connection, training).units == first.units
    assert checks.waiting(connection, training) <= 16 + 2


def test_pairs_are_bounded(connection, training, crew, machine_of):
    """Each keeps two payloads until it was compared."""
    machines = [machine_of(f"student{number}") for number in range(40)]
    leases = [machine.claim() for machine in machines]
    twice = len(leases) - len({lease.units[0].ordinal for lease in leases})
    assert twice == 16
    for machine, lease in zip(machines, leases, strict=True):
        machine.submit(lease)
    connection.execute("DELETE FROM classgan.checks WHERE trail IS NULL AND student_id NOT IN (SELECT id FROM classgan.students WHERE login = 'alan')")  # fmt: skip
    later = [machine.claim().units[0].ordinal for machine in machines]
    assert len(set(later)) == len(later)  # nothing was compared meanwhile


def test_those_that_disagree_never_keep_others_from_being_compared(connection, training, crew):
    """A part of the honest pairs disagrees, too, and the instructor's machine is slow."""
    ada, grace, _ = crew
    for number in range(20):
        first, second = ada.claim(), grace.claim()
        assert second.units == first.units, number
        ada.submit(first)
        grace.submit(second)
        checks.dispute(connection, checks.next_pair(connection, training))
    waiting = "SELECT count(*) FROM classgan.checks WHERE disputed"
    assert connection.execute(waiting).fetchone() == (checks.DISPUTED,)
    assert student.my_credit(grace.connection)[0] == 20  # whatever couldn't be looked at keeps its credit
