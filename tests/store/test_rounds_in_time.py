"""A round that closes in time: a machine hands in what it has computed by then, and the rest goes back. Each image is learned from once."""

import psycopg
import pytest
from answering import MEASURES, PAYLOAD, TRAIL, streak

from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import checks, trainings, unit_queue
from gan_core.units import Measures, Verdict, first_of

UNIT, BATCH, UNITS = 48, 8, 6


@pytest.fixture
def plan(tiny):
    return tiny.changed(
        images_per_unit=UNIT, batch_size=BATCH, quorum="auto", target_seconds=60, max_units_per_lease=16
    )


@pytest.fixture
def training(connection, plan) -> int:
    """A running training whose first round has six units of six batches and closes in a minute."""
    row = trainings.create(connection, "test", plan.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 5000, len(PAYLOAD), b"weights 0")
    units, position = cut_units(plan, 0, 5000, None, UNITS * UNIT)
    unit_queue.create_units(connection, row.id, 0, UNITS * UNIT, position, units, plan.target_seconds, is_boxed=True)
    return row.id


@pytest.fixture
def ada(machine_of, connection):
    """A machine that computes three units a minute."""
    machine = machine_of("ada")
    connection.execute("UPDATE classgan.workers SET images_per_second = %s", (2.4 * UNIT / 60,))
    return machine


def hand_in(machine, lease, images: int):
    measures = Measures(**{**vars_of(MEASURES), "images": images})
    return student.submit(machine.connection, lease.id, machine.boot, measures, PAYLOAD, TRAIL)


def vars_of(measures) -> dict:
    return {name: getattr(measures, name) for name in measures.__slots__}


def units_of(connection, training: int) -> list[tuple]:
    return connection.execute(
        "SELECT ordinal, state::text, images, indices, seed FROM classgan.units WHERE training_id = %s ORDER BY ordinal",
        (training,),
    ).fetchall()


def close_in(connection, seconds: float) -> None:
    connection.execute("UPDATE classgan.iterations SET closes_at = now() + make_interval(secs => %s)", (seconds,))


def test_a_lease_says_how_long_its_round_goes_on_and_holds_more_than_can_be_done(connection, training, ada):
    close_in(connection, 60)
    lease = ada.claim()
    assert 55 < lease.seconds_left <= 60
    assert len(lease.units) == 3  # 2.4, and a fifth more


def test_whoever_stops_hands_in_what_was_computed_and_the_rest_goes_back(connection, training, ada):
    before = units_of(connection, training)
    lease = ada.claim()
    images = UNIT + 2 * BATCH  # in the middle of the second unit
    answer = hand_in(ada, lease, images)
    assert (answer.verdict, answer.reason) == (Verdict.ACCEPTED, "")
    assert student.my_credit(ada.connection)[:2] == (2, images)
    (arrival,) = unit_queue.arrivals(connection, training, 0)
    assert (arrival.first_ordinal, arrival.images) == (0, images)
    after = units_of(connection, training)
    assert [(state, size) for _, state, size, _, _ in after] == [
        ("done", UNIT), ("done", 2 * BATCH), *[("open", UNIT)] * 4, ("open", 4 * BATCH),
    ]  # fmt: skip
    whole = [index for _, _, _, indices, _ in before for index in indices]
    assert sorted(index for _, _, _, indices, _ in after for index in indices) == sorted(whole)
    assert after[1][3] + after[6][3] == before[1][3]  # cut where it stopped
    assert len({seed for *_, seed in after}) == len(after)


def test_a_lease_may_end_with_a_unit(connection, training, ada):
    assert hand_in(ada, ada.claim(), 2 * UNIT).verdict is Verdict.ACCEPTED
    assert [state for _, state, *_ in units_of(connection, training)] == ["done", "done", *["open"] * 4]


@pytest.mark.parametrize("images", [0, 1, BATCH + 1, UNIT - 1, UNIT + BATCH - 1, 3 * UNIT - 1])
def test_where_no_batch_ends_nobody_can_have_stopped(connection, training, ada, images):
    before = units_of(connection, training)
    answer = hand_in(ada, ada.claim(), images)
    assert answer.verdict is Verdict.REFUSED
    assert answer.reason == f"it holds {images} of {3 * UNIT} images, and none of its batches ends there"
    assert [unit[2:] for unit in units_of(connection, training)] == [unit[2:] for unit in before]
    assert all(state == "open" for _, state, *_ in units_of(connection, training))


def test_units_of_odd_sizes_are_cut_where_their_batches_end(connection, training, ada):
    """43 images are five batches of 9, 9, 9, 8 and 8."""
    connection.execute("UPDATE classgan.units SET images = 43, indices = indices[1:43] WHERE ordinal = 0")
    lease = ada.claim()
    assert lease.units[0].images == 43
    assert hand_in(ada, lease, 35).verdict is Verdict.ACCEPTED
    assert [size for _, _, size, _, _ in units_of(connection, training)] == [35, *[UNIT] * 5, 8]


def test_shortly_before_its_end_a_round_hands_nothing_out(connection, training, ada):
    close_in(connection, 7)
    assert ada.claim() is None
    close_in(connection, 20)
    assert len(ada.claim().units) == 1


@pytest.mark.parametrize("seconds", [7, 60])
def test_what_goes_back_wakes_machines_only_while_they_can_have_it(connection, training, ada, database, seconds):
    """At the end of a round all machines hand in at the same moment: were each of them woken by each, 120 would ask 14,400 times."""
    lease = ada.claim()
    close_in(connection, seconds)
    with psycopg.connect(database, autocommit=True) as ear:
        ear.execute("LISTEN classgan_work")
        assert hand_in(ada, lease, UNIT).verdict is Verdict.ACCEPTED
        connection.execute("NOTIFY classgan_work, 'the last'")
        heard = next(ear.notifies(timeout=30, stop_after=1)).payload
    assert heard == ("the last" if seconds == 7 else "")


def test_of_a_machine_whose_time_is_over_nobody_takes_a_backup(connection, training, ada, machine_of):
    ada.claim()
    connection.execute("UPDATE classgan.units SET state = 'stale' WHERE lease_id IS NULL")
    connection.execute("UPDATE classgan.leases SET claimed_at = now() - interval '1 hour'")
    assert machine_of("grace").claim() is None


def test_a_round_that_is_over_says_so_and_goes_on_if_nobody_was_there(connection, training):
    assert not unit_queue.progress(connection, training, 0).is_over
    close_in(connection, -1)
    assert unit_queue.progress(connection, training, 0).is_over
    unit_queue.extend(connection, training, 0)
    assert not unit_queue.progress(connection, training, 0).is_over


def test_what_is_recomputed_is_what_was_computed(connection, training, ada):
    lease = ada.claim()
    hand_in(ada, lease, UNIT + 2 * BATCH)
    waiting = checks.next_check(connection, training)
    assert [unit.images for unit in waiting.units] == [UNIT, 2 * BATCH]
    assert waiting.units[1].indices == lease.units[1].indices[: 2 * BATCH]
    assert waiting.units[1].seed == lease.units[1].seed


def test_a_late_answer_earns_what_it_holds_and_its_units_go_into_the_next_round_once(connection, training, ada):
    lease = ada.claim()
    publish(connection, training)
    answer = hand_in(ada, lease, UNIT + 2 * BATCH)
    assert (answer.verdict, answer.reason) == (Verdict.LATE, "iteration 0 closed before this answer came")
    assert student.my_credit(ada.connection)[:2] == (2, UNIT + 2 * BATCH)
    left = [index for unit in unit_queue.left_over(connection, training, 0) for index in unit.indices]
    assert sorted(left) == sorted(index for *_, indices, _ in units_of(connection, training) for index in indices)
    assert len(left) == len(set(left)) == UNITS * UNIT


def publish(connection, training: int) -> None:
    """Close the first round as if somebody else had brought something."""
    trainings.publish(connection, training, 0, 0, [], 0, UNITS * UNIT, b"weights 1")
    connection.execute("UPDATE classgan.iterations SET images = 1")


def test_a_round_that_waits_for_its_images_takes_whole_leases_only(connection, training, ada):
    connection.execute("UPDATE classgan.iterations SET closes_at = NULL")
    lease = ada.claim()
    assert lease.seconds_left is None
    assert hand_in(ada, lease, BATCH).verdict is Verdict.ACCEPTED
    assert student.my_credit(ada.connection)[1] == lease.images
    assert streak(connection, "ada") == 0


def test_two_machines_that_stop_at_once_do_not_cut_units_of_the_same_number(connection, training, ada, machine_of):
    grace = machine_of("grace")
    mine, theirs = ada.claim(), grace.claim()
    assert hand_in(ada, mine, BATCH).verdict is Verdict.ACCEPTED
    assert hand_in(grace, theirs, BATCH).verdict is Verdict.ACCEPTED
    ordinals = [ordinal for ordinal, *_ in units_of(connection, training)]
    assert ordinals == [*range(UNITS), 100_000 + mine.id, 100_000 + theirs.id]


@pytest.fixture
def crew(connection, training, machine_of, ada):
    """Ada and grace of eight students; the instructor's machine has more to check than it manages."""
    grace, *others = (machine_of(f"student{n}") for n in range(7))
    for machine in 2 * (grace, *others[:3]):
        hand_in(machine, machine.claim(), BATCH)
    connection.execute("UPDATE classgan.workers SET images_per_second = %s", (2.4 * UNIT / 60,))
    return ada, grace


def test_what_one_machine_has_computed_another_one_computes_again_and_both_are_compared(connection, training, crew):
    """Only when its round's end has shown how much that is."""
    ada, grace = crew
    first = ada.claim()
    assert grace.claim().units != first.units
    assert hand_in(ada, first, 2 * BATCH).verdict is Verdict.ACCEPTED
    assert checks.next_pair(connection, training) is None
    second = grace.claim()
    assert second.units == first_of(first.units, 2 * BATCH)
    assert second.seconds_left is None  # all of it
    publish(connection, training)
    assert hand_in(grace, second, second.images).verdict is Verdict.ACCEPTED
    pair = checks.next_pair(connection, training)
    assert pair.units == second.units


def test_if_nobody_takes_it_it_is_recomputed_like_any(connection, training, crew):
    ada, _ = crew
    hand_in(ada, ada.claim(), 2 * BATCH)
    connection.execute("DELETE FROM classgan.checks WHERE trail IS NULL")  # the others' are recomputed
    assert checks.next_check(connection, training) is None
    connection.execute("UPDATE classgan.trainings SET iteration = 3")
    assert [unit.images for unit in checks.next_check(connection, training).units] == [2 * BATCH]
