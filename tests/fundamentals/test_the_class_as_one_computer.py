"""Read these first: what a class is, one behaviour a test, in the product's words."""

import psycopg
import torch
from poll import wait_until

from gan_core.coordinator.coordinator import Coordinator
from gan_core.networks.reference import train_local
from gan_core.store import student
from gan_core.store.viewers import ledger


def test_machines_that_share_the_work_give_the_weights_of_one_machine(classroom, tiny, digits):
    """Three machines train together; one machine alone would have reached the very same weights."""
    with classroom.working(3):
        together = classroom.train(tiny)
    alone = train_local(tiny, digits)
    assert torch.equal(together.state.weights.generator, alone.weights.generator)


def test_a_closed_laptop_loses_its_unit_to_the_next_machine(classroom, tiny, digits):
    """A lease ends by itself when nothing is heard of its machine. The unit goes to someone else; nothing is lost."""
    plan = tiny.changed(lease_seconds=1)
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        training.create_units()
        with psycopg.connect(classroom.student_url("sleepy"), autocommit=True) as connection:
            laptop = classroom.shift("sleepy")
            worker = student.register(connection, "laptop", laptop.boot, "cpu", {})
            assert student.claim(connection, worker, laptop.boot) is not None  # and then its lid closes
        with classroom.working(1):
            training.publish(training.gather())
    assert training.state.images == plan.quorum


def test_a_machine_may_join_late(classroom, tiny, digits):
    with classroom.working(1):
        classroom.train(tiny, until=1)
    classroom.stop.clear()
    with classroom.working(0), psycopg.connect(classroom.url, autocommit=True) as connection:
        late = classroom.shift("late")
        import threading

        thread = threading.Thread(target=late.run)
        thread.start()
        wait_until(
            lambda: connection.execute("SELECT count(*) FROM classgan.workers").fetchone()[0] == 2,
            what="the late machine",
        )
        trained = classroom.train(tiny.changed(iterations=8))
        classroom.stop.set()
        thread.join()
    assert torch.equal(
        trained.state.weights.generator, train_local(tiny.changed(iterations=8), digits).weights.generator
    )
    assert late.tally.units > 0


def test_credit_is_what_was_accepted(classroom, tiny):
    """Every accepted image is somebody's, and nobody's twice."""
    with classroom.working(3) as shifts:
        classroom.train(tiny)
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        credits = ledger.credits(connection)
    assert sum(c.images for c in credits) == tiny.iterations * tiny.quorum
    assert {c.login: c.images for c in credits if c.images} == {
        s.name: s.tally.images for s in shifts if s.tally.images
    }


def test_stopping_finishes_the_unit_at_hand(classroom, tiny):
    """Asked to stop, a machine submits what it was computing; nobody has to do it again."""
    with Coordinator(classroom.url, "test", tiny, classroom.cache) as training:
        training.create_units()
        asked = iter([False, False, True])
        shift = classroom.shift("polite", lambda: next(asked, True))
        tally = shift.run()
        assert tally.units >= 1
        with psycopg.connect(classroom.url, autocommit=True) as connection:
            states = dict(
                connection.execute("SELECT state::text, count(*) FROM classgan.units GROUP BY state").fetchall()
            )
        assert states["done"] == tally.units
        assert "leased" not in states


def test_a_bad_contribution_is_refused_and_its_unit_done_by_someone_else(classroom, tiny, digits, monkeypatch):
    """Bytes that aren't what this training expects never reach the weights."""
    from gan_core.worker import shift as shift_module

    real, spoiled = shift_module.encode, []

    def sometimes_bad(*args):
        payload = real(*args)
        if not spoiled:
            spoiled.append(1)
            return payload[:-4] + b"\xff\xff\xff\x7f"
        return payload

    monkeypatch.setattr(shift_module, "encode", sometimes_bad)
    with classroom.working(2):
        trained = classroom.train(tiny)
    assert spoiled
    assert torch.equal(trained.state.weights.generator, train_local(tiny, digits).weights.generator)
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        refused = connection.execute("SELECT reason FROM classgan.contributions WHERE verdict = 'refused'").fetchall()
    assert refused == [("checksum does not match: the payload was damaged on its way",)]
