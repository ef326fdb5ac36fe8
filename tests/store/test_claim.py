"""Claims: every unit to exactly one machine, however many ask at once."""

import threading
from collections import Counter
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from poll import wait_until

from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.migrate import add_student


@pytest.fixture
def units_open(connection, tiny):
    """A function that opens an iteration of so many units of a new training, and returns its id."""

    def open_units(count: int, plan: Plan = tiny, name: str = "test") -> int:
        row = trainings.create(connection, name, plan.model_dump(mode="json"))
        trainings.start(connection, row.id, "data", 5000, 100, b"weights")
        units, position = cut_units(plan.changed(quorum=count * plan.images_per_unit), 0, 10**7)
        unit_queue.create_units(connection, row.id, 0, plan.quorum, position, units[:count])
        return row.id

    return open_units


@pytest.fixture
def machine(connection):
    """A registered worker: (worker id, boot id)."""
    add_student(connection, "instructor")
    boot = uuid4()
    return student.register(connection, "desk", boot, "cpu", {}), boot


def end(connection, lease) -> None:
    """A machine holds three leases at most; here it isn't about that."""
    connection.execute("UPDATE classgan.leases SET ended_at = now() WHERE id = %s", (lease.id,))


@pytest.mark.slow
def test_32_connections_share_5000_units_and_none_is_lost_or_leased_twice(database, connection, units_open, tiny):
    training = units_open(5000)
    add_student(connection, "instructor")
    start, taken = threading.Barrier(32), [[] for _ in range(32)]

    def work(number: int) -> None:
        with psycopg.connect(database, autocommit=True) as mine:
            boot = uuid4()
            worker = student.register(mine, f"w{number}", boot, "cpu", {})
            start.wait()
            while lease := student.claim(mine, worker, boot):
                taken[number].extend((lease.id, unit.ordinal) for unit in lease.units)
                end(mine, lease)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counter(ordinal for claims in taken for _, ordinal in claims)
    assert set(counts) == set(range(5000))
    assert set(counts.values()) == {1}
    assert connection.execute("SELECT count(*) FROM classgan.leases").fetchone() == (5000,)
    assert unit_queue.progress(connection, training, 0).leased == 5000


@pytest.mark.slow
def test_a_claim_uses_its_index_at_100_000_rows(connection, units_open, machine):
    """The very function that workers call must not read the table from end to end."""
    units_open(100_000)
    connection.execute("ANALYZE classgan.units")

    def scans() -> tuple[int, int]:
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT pg_stat_clear_snapshot()")
        whole = connection.execute("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'units'").fetchone()[0]
        index = connection.execute(
            "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'ix_units_open'"
        ).fetchone()[0]
        return whole, index

    whole, index = scans()
    for _ in range(20):
        lease = student.claim(connection, *machine)
        assert lease is not None
        end(connection, lease)
    wait_until(lambda: scans()[1] >= index + 20, what="the index's counter")
    assert scans()[0] == whole, "a claim scanned the whole table"

    candidate = " ".join(part for part in _claim_statement().split())
    plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {candidate}"))
    assert "ix_units_open" in plan
    assert "Seq Scan" not in plan


def _claim_statement() -> str:
    """The statement inside the claim that looks for units, with numbers in the place of variables."""
    from gan_core.store.migrate import function_files

    text = dict(function_files())["04_claim.sql"]
    statement = text.split("WITH candidate AS (")[1].split("FOR UPDATE")[0]
    lines = [line.split("--")[0] for line in statement.splitlines()]
    return (
        "\n".join(lines)
        .replace("FROM units", "FROM classgan.units")
        .replace("chosen.id", "1")
        .replace("chosen.iteration", "0")
        .replace("want", "3")
        .replace("have", "0")
    )


def test_the_lowest_unit_comes_first(connection, units_open, machine):
    units_open(3)
    assert [student.claim(connection, *machine).units[0].ordinal for _ in range(3)] == [0, 1, 2]
    assert student.claim(connection, *machine) is None


def test_units_carry_what_was_stored(connection, units_open, machine, tiny):
    units_open(3)
    expected, _ = cut_units(tiny, 0, 10**7)
    assert student.claim(connection, *machine).units == (replace(expected[0], position=None),)


def test_every_claim_has_a_higher_number(connection, units_open, machine):
    units_open(4)
    numbers = []
    for _ in range(4):
        lease = student.claim(connection, *machine)
        numbers.append(lease.id)
        end(connection, lease)
    assert numbers == sorted(set(numbers))


def test_a_fast_machine_gets_more_but_leaves_the_others_their_share(connection, units_open, machine, tiny):
    units_open(12, tiny.changed(max_units_per_lease=8, target_seconds=1))
    worker, boot = machine
    assert len(student.claim(connection, worker, boot).units) == 1  # its speed isn't known yet
    connection.execute("UPDATE classgan.workers SET images_per_second = 16 * 5")
    assert len(student.claim(connection, worker, boot).units) == 5  # five units of 16 images in a second
    student.register(connection, "other", uuid4(), "cpu", {})
    assert len(student.claim(connection, worker, boot).units) == 3  # 6 are left, and two machines are here


@pytest.mark.parametrize("state", ["queued", "launching", "paused", "succeeded", "failed", "cancelled"])
def test_only_running_trainings_hand_out_work(connection, units_open, machine, state):
    training = units_open(3)
    trainings.set_state(connection, training, state)
    assert student.claim(connection, *machine) is None


def test_a_machine_gets_only_units_whose_images_it_has(connection, machine, tiny):
    """Where data is fetched in shards: it says how many images of which training it has, from the first one on."""
    row = trainings.create(connection, "shards", tiny.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 96, 100, b"weights")
    units, position = cut_units(tiny.changed(quorum=96), 0, 96, shards=[48, 48])
    unit_queue.create_units(connection, row.id, 0, 96, position, units)
    first = [unit.ordinal for unit in units if unit.reach <= 48]
    assert len(first) == 3
    assert student.claim(connection, *machine) is None
    assert student.claim(connection, *machine, row.id + 1, 96) is None  # of another training

    def taken(images: int) -> list[int]:
        found = []
        while lease := student.claim(connection, *machine, row.id, images):
            found.append(lease.units[0].ordinal)
            end(connection, lease)
        return found

    assert taken(47) == [n for n in first if units[n].reach <= 47]
    assert taken(48) == [n for n in first if units[n].reach == 48]
    assert taken(96) == [unit.ordinal for unit in units if unit.reach > 48]


def test_an_idle_machine_backs_up_only_units_whose_images_it_has(connection, machine, tiny):
    row = trainings.create(connection, "shards", tiny.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 96, 100, b"weights")
    units, position = cut_units(tiny.changed(quorum=16, sampler="sequential"), 48, 96, shards=[48, 48])
    unit_queue.create_units(connection, row.id, 0, 16, position, units[:1])
    assert student.claim(connection, *machine, row.id, 96) is not None
    connection.execute("UPDATE classgan.leases SET claimed_at = now() - interval '1 hour'")
    other = student.register(connection, "other", boot := uuid4(), "cpu", {}), boot
    assert student.claim(connection, *other, row.id, 48) is None
    assert student.claim(connection, *other, row.id, 96) is not None
