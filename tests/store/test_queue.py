"""The queue in the database: states that may follow each other, submissions, placements, and claims that stop_if_asked them."""

from itertools import product
from math import inf
from uuid import uuid4

import psycopg
import pytest

from gan_core.errors import TrainingError
from gan_core.policies.sampling import cut_units
from gan_core.scheduler.survey import Rules, look, move, survey
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.migrate import add_student
from gan_core.store.scheduler import placements, submissions
from gan_core.units import TRANSITIONS, TrainingState

RULES = Rules(max_running=2, max_wait=3_600)
ANY = {"priority": 0, "gpus": 0, "memory_mb": 0, "min_workers": 1, "max_workers": None}
GPU = {"gpus": [{"name": "A", "memory_mb": 8_192}]}


@pytest.fixture
def submitted(connection, tiny):
    """A function that submits a training, and returns its id."""

    def submit(name, owner="ada", key=None, **demand) -> int:
        submissions.submit(connection, name, tiny.model_dump(mode="json"), ANY | demand, owner, key)
        return trainings.get(connection, name).id

    return submit


@pytest.fixture
def running(connection, tiny, submitted):
    """A function that submits a training and opens its first iteration, as its coordinator would."""

    def run(name, **demand) -> int:
        number = submitted(name, **demand)
        trainings.start(connection, number, "data", 5_000, 100, b"weights")
        units, position = cut_units(tiny, 0, 5_000)
        unit_queue.create_units(connection, number, 0, tiny.quorum, position, units)
        return number

    return run


@pytest.fixture
def machine(connection):
    """A function that registers a worker that is there, and returns (worker id, boot id)."""

    def register(name="desk", device="cpu", hardware=None):
        add_student(connection, "instructor")
        boot = uuid4()
        return student.register(connection, name, boot, device, hardware or {}), boot

    return register


def state_of(connection, name) -> TrainingState:
    return trainings.get(connection, name).state


# States


def test_the_database_lets_through_exactly_the_transitions_of_the_table(connection, submitted):
    number = submitted("test")
    for before, after in product(TrainingState, repeat=2):
        connection.execute("ALTER TABLE classgan.trainings DISABLE TRIGGER USER")
        connection.execute("UPDATE classgan.trainings SET state = %s", (before,))
        connection.execute("ALTER TABLE classgan.trainings ENABLE TRIGGER USER")
        if before is after or after in TRANSITIONS[before]:
            connection.execute("UPDATE classgan.trainings SET state = %s WHERE id = %s", (after, number))
            continue
        with pytest.raises(psycopg.errors.CheckViolation, match=f'"test" is {before}: it can.t become {after}'):
            connection.execute("UPDATE classgan.trainings SET state = %s WHERE id = %s", (after, number))


def test_waiting_is_counted_from_submission_until_the_workers_are_there(connection, submitted, machine):
    number = submitted("test")
    connection.execute("UPDATE classgan.trainings SET waiting_since = now() - interval '90 seconds'")
    (entry,) = placements.entries(connection)
    assert entry.wanted.waited == pytest.approx(90, abs=20)
    machine()
    look(connection, RULES)
    since, waited = connection.execute(
        "SELECT waiting_since, waited_seconds FROM classgan.trainings WHERE id = %s", (number,)
    ).fetchone()
    assert since is None
    assert waited == pytest.approx(90, abs=20)


# Submissions


def test_the_same_key_twice_is_one_training(connection, tiny):
    plan = tiny.model_dump(mode="json")
    assert submissions.submit(connection, "one", plan, ANY, "ada", "k") == ("one", True)
    assert submissions.submit(connection, "other", plan, ANY, "ada", "k") == ("one", False)
    assert submissions.submit(connection, "other", plan, ANY, "grace", "k") == ("other", True)
    assert len(trainings.every(connection)) == 2


def test_a_name_that_is_taken_is_refused_in_a_sentence(connection, submitted):
    submitted("one", key="k")
    with pytest.raises(TrainingError, match="a training called 'one' already"):
        submitted("one")
    with pytest.raises(TrainingError, match="a training called 'one' already"):
        submitted("one", key="another")


# Claims


def test_a_claim_follows_the_placement_and_not_the_lowest_id(connection, running, machine):
    running("first")
    second = running("second")
    worker, boot = machine()
    connection.execute("SELECT classgan.record_placements(%s, %s, '{because}')", ([worker], [second]))
    assert student.claim(connection, worker, boot).training_id == second


def test_without_a_placement_the_first_one_that_takes_anybody_is_served(connection, running, machine):
    """A single training behaves as if there was no queue; one that asks for something waits for the queue's word."""
    running("choosy", max_workers=2)
    easy = running("easy")
    assert student.claim(connection, *machine()).training_id == easy


@pytest.mark.parametrize(
    ("device", "hardware", "room"),
    [("cpu", {"memory_mb": 8_000}, 4_000), ("cpu", {"memory_mb": 8_000, "room_mb": 12_000}, 4_000), ("cpu", {"memory_mb": 1e300}, 50_000_000),
     ("cuda:0", {"memory_mb": 8_000, "room_mb": 12_000}, 12_000), ("cuda:1", {"memory_mb": 8_000, "room_mb": 2_000}, 4_000), ("mps", {"room_mb": 5_000}, 5_000),
     ("cuda:0", {"memory_mb": 8_000}, None), ("cpu", {}, None), ("cpu", {"memory_mb": "all", "room_mb": 7}, None)],
)  # fmt: skip
def test_a_step_that_is_larger_than_a_machine_has_room_for_is_not_leased_to_it(
    connection, running, machine, device, hardware, room
):
    """Its GPU's memory or half of its own, whichever is more; who hasn't said, as one of the last version, is taken for large enough."""
    large = running("large")
    worker, boot = machine(device=device, hardware=hardware)
    assert connection.execute("SELECT classgan.room_mb(device, hardware) FROM classgan.workers").fetchone() == (room,)
    trainings.set_step(connection, large, 2**31 - 1 if room is None else room + 1)
    assert (student.claim(connection, worker, boot) is None) == (room is not None)
    ((message,),) = connection.execute("SELECT message FROM classgan.workers").fetchall()
    assert message == ("" if room is None else (
        f"One step of large takes {room + 1} MB of memory, and this machine has room for {room} MB: it waits for a training that fits."
    ))  # fmt: skip
    (seen,) = placements.machines(connection)
    assert seen.too_large == (set() if room is None else {large})
    trainings.set_step(connection, large, room or 0)
    assert student.claim(connection, worker, boot).training_id == large


def test_a_machine_works_for_what_it_has_room_for_and_backs_up_nothing_else(connection, running, machine):
    large, small = running("large"), running("small")
    (worker, boot), (slow, slow_boot) = machine("laptop", hardware={"memory_mb": 8_000}), machine("slow")
    trainings.set_step(connection, large, 4_001)
    held = student.claim(connection, slow, slow_boot)
    assert held.training_id == large  # which has said nothing of its memory
    assert student.claim(connection, worker, boot).training_id == small
    look(connection, RULES)
    seen = survey(connection, RULES)
    assert seen.round.placements[worker].training == small
    assert seen.reason(large) == (
        "runs with 1 worker; one step takes 4,001 MB of memory, and 1 machine of 2 has no room for it"
    )
    connection.execute("UPDATE classgan.units SET state = 'stale' WHERE state = 'open'")
    connection.execute(
        "UPDATE classgan.leases SET claimed_at = now() - interval '1 hour', leased_until = now() + interval '1 hour'"
    )
    add_student(connection, "grace")
    connection.execute(
        "UPDATE classgan.workers SET student_id = (SELECT id FROM classgan.students WHERE login = 'grace') WHERE name = 'slow'"
    )
    connection.execute("UPDATE classgan.placements SET training_id = %s WHERE worker_id = %s", (large, worker))
    assert student.claim(connection, worker, boot) is None


def test_a_placement_on_a_training_that_has_ended_is_none(connection, running, machine):
    ended, other = running("ended"), running("other")
    worker, boot = machine()
    connection.execute("SELECT classgan.record_placements(%s, %s, '{because}')", ([worker], [ended]))
    trainings.set_state(connection, ended, TrainingState.SUCCEEDED)
    assert student.claim(connection, worker, boot).training_id == other


def test_an_idle_worker_backs_up_only_the_training_it_is_placed_on(connection, running, machine):
    one, two = running("one"), running("two")
    (slow, boot), (idle, other_boot) = machine("slow"), machine("idle")
    connection.execute("SELECT classgan.record_placements(%s, %s, '{a,b}')", ([slow, idle], [one, two]))
    held = student.claim(connection, slow, boot)
    connection.execute(
        "UPDATE classgan.leases SET claimed_at = now() - interval '1 hour', leased_until = now() + interval '1 hour'"
    )
    connection.execute("UPDATE classgan.units SET state = 'stale' WHERE state = 'open'")
    add_student(connection, "grace")  # a backup is another student's
    connection.execute(
        "UPDATE classgan.workers SET student_id = (SELECT id FROM classgan.students WHERE login = 'grace') WHERE name = 'slow'"
    )
    assert student.claim(connection, idle, other_boot) is None
    connection.execute("SELECT classgan.record_placements(%s, %s, '{a,b}')", ([slow, idle], [one, one]))
    assert student.claim(connection, idle, other_boot).units == held.units


def test_a_drained_worker_gets_nothing_new_until_it_is_wanted_again(connection, running, machine):
    running("test")
    worker, boot = machine("desk")
    assert placements.drain(connection, "desk", "the instructor") == 1
    assert student.claim(connection, worker, boot) is None
    assert not [m for m in placements.machines(connection) if m.online]
    assert placements.drain(connection, "desk", "") == 1
    assert student.claim(connection, worker, boot) is not None
    assert placements.drain(connection, "nobody", "x") == 0


def test_a_claim_among_twenty_trainings_reads_no_table_from_end_to_end(connection, running, machine):
    numbers = [running(f"t{n}") for n in range(20)]
    worker, boot = machine()
    connection.execute("SELECT classgan.record_placements(%s, %s, '{because}')", ([worker], [numbers[-1]]))
    connection.execute("ANALYZE classgan.units")
    connection.execute("SET enable_seqscan = off")  # so few rows: only shows that an index can be used
    plan = "\n".join(
        row[0]
        for row in connection.execute(
            "EXPLAIN SELECT t.id FROM classgan.trainings AS t, LATERAL (SELECT FROM classgan.units AS u WHERE u.training_id = t.id"
            " AND u.iteration = t.iteration AND u.state = 'open' ORDER BY u.training_id, u.iteration, u.ordinal LIMIT 1) AS o"
            f" WHERE t.state = 'running' AND (t.id = {numbers[-1]} OR ({numbers[-1]} IS NULL AND classgan.takes_anybody(t))) LIMIT 1"
        )
    )
    assert "pk_trainings" in plan
    assert "ix_units_open" in plan
    assert "Filter" not in plan.split("ix_units_open")[0].split("pk_trainings")[0]
    assert student.claim(connection, worker, boot).training_id == numbers[-1]


# The look


def test_a_look_places_workers_says_why_and_calls_the_next_coordinator(connection, submitted, machine):
    one = submitted("one", min_workers=2)
    two = submitted("two", owner="grace", gpus=1)
    worker, _ = machine("desk")
    turn = look(connection, RULES)
    assert turn.calls == ()
    assert turn.needs_shifts
    assert trainings.get(connection, "one").message.startswith("needs 2 workers, but the class has only 1")
    assert "no machine of this class has a GPU" in trainings.get(connection, "two").message
    other, _ = machine("lab", "cuda:0", GPU)
    turn = look(connection, RULES)
    assert [call.name for call in turn.calls] == ["one"]  # the gang takes both: it came first
    found = connection.execute(
        "SELECT worker_id, training_id FROM classgan.placements WHERE ended_at IS NULL"
    ).fetchall()
    assert sorted(found) == sorted([(worker, one), (other, one)])
    assert look(connection, RULES).calls == ()  # called already
    connection.execute("UPDATE classgan.trainings SET called_at = now() - interval '1 hour' WHERE id = %s", (one,))
    assert [call.name for call in look(connection, RULES).calls] == ["one"]  # nothing came of it
    (decision,) = placements.decisions(connection, "lab")
    assert decision.reason == "one of the 2 workers that it needs at least"
    assert two


def test_a_higher_priority_puts_a_lower_one_back_into_the_queue(connection, running, submitted, machine):
    running("low")
    machine()
    look(connection, Rules(max_running=1))
    assert connection.execute("SELECT in_turn FROM classgan.trainings").fetchone() == (True,)
    submitted("high", priority=5)
    turn = look(connection, Rules(max_running=1))
    assert [call.name for call in turn.calls] == ["high"]
    assert state_of(connection, "low") is TrainingState.QUEUED
    assert "took its place" in trainings.get(connection, "low").message


def test_one_look_at_a_time(database, connection, submitted, machine):
    submitted("test")
    machine()
    with psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (placements.LOCK,))
        assert look(connection, RULES).calls == ()
    assert [call.name for call in look(connection, RULES).calls] == ["test"]


def test_a_coordinator_that_has_died_is_called_again_if_the_queue_had_started_it(connection, running, machine):
    number = running("test")
    machine()
    assert look(connection, RULES).calls == ()  # somebody started it by hand
    submissions.call(connection, [number])
    connection.execute("UPDATE classgan.trainings SET called_at = now() - interval '10 minutes'")
    (call,) = look(connection, RULES).calls
    assert (call.name, call.silent) == ("test", inf)  # no coordinator was ever heard of


def test_what_the_queue_started_goes_on_by_itself_when_the_class_comes_back(connection, running):
    by_queue, by_hand = running("queue"), running("hand")
    submissions.call(connection, [by_queue])
    trainings.interrupt_all(connection)
    assert (state_of(connection, "queue"), state_of(connection, "hand")) == (TrainingState.QUEUED, TrainingState.PAUSED)
    assert by_hand


def test_gpus_are_those_that_a_worker_computes_on():
    two = {"gpus": [{"memory_mb": 8_192}, {"memory_mb": 4_096}]}
    assert placements.gpus_of("cuda:0", two) == (1, 8_192)
    assert placements.gpus_of("cuda:0,cuda:1", two) == (2, 4_096)
    assert placements.gpus_of("cuda:7", two) == (0, 0)
    assert placements.gpus_of("cpu", two) == (0, 0)
    assert placements.gpus_of("mps", {}) == (1, 0)
    assert placements.gpus_of("cuda:0", {"gpus": "many"}) == (0, 0)


def test_a_machine_that_gives_everything_back_is_not_believed(connection, running, machine):
    """Whatever hardware it says it has: three leases of a training given back and none accepted within the hour."""
    number = running("test")
    worker, boot = machine()
    for _ in range(3):
        lease = student.claim(connection, worker, boot)
        student.release(connection, lease.id, boot, "out of memory")
    (found,) = placements.machines(connection)
    assert found.failed == {number}
    assert survey(connection, RULES).round.placements == {}


def test_an_owners_use_is_the_work_of_the_machines_that_had_been_placed(connection, running, machine):
    one, two = running("one"), running("two", owner="grace")
    fast, slow = machine("fast")[0], machine("slow")[0]
    connection.execute("UPDATE classgan.workers SET images_per_second = CASE name WHEN 'fast' THEN 300 ELSE 100 END")
    connection.execute("SELECT classgan.record_placements(%s, %s, '{a,b}')", ([fast, slow], [one, two]))
    connection.execute("UPDATE classgan.placements SET decided_at = now() - interval '1 hour'")
    assert placements.used(connection) == pytest.approx({"ada": 0.75, "grace": 0.25}, abs=0.01)


def test_moving_changes_the_order_and_takes_on_the_priority_of_the_place(connection, submitted):
    for name, priority in (("a", 0), ("b", 0), ("c", 0), ("urgent", 3)):
        submitted(name, priority=priority)

    def order() -> list[str]:
        return [w.name for w in survey(connection, RULES).round.order]

    assert order() == ["urgent", "a", "b", "c"]
    assert move(connection, "c", "a", RULES) == "c comes right after a."
    assert order() == ["urgent", "a", "c", "b"]
    assert move(connection, "b", "", RULES) == "b is at the top of the queue; its priority is 3 now, it was 0."
    assert order() == ["b", "urgent", "a", "c"]
    submissions.set_priority(connection, trainings.get(connection, "b").id, 0)
    assert order() == ["urgent", "a", "c", "b"]
    with pytest.raises(TrainingError, match="There is no training called 'nobody'"):
        move(connection, "nobody", "", RULES)
