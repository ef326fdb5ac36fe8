"""Credit is for real work: a student hands in what looks like a contribution, and is found."""

import threading
from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
import torch
from poll import wait_until

from gan_core.coordinator.coordinator import Coordinator
from gan_core.errors import StoreError
from gan_core.layout import Vectors
from gan_core.networks import gradients
from gan_core.networks.models import layout_of
from gan_core.policies.codecs import payload_size
from gan_core.store import student
from gan_core.store.coordinator import events, trainings
from gan_core.store.viewers import ledger
from gan_core.units import EventKind, Measures, Verdict, WorkUnit
from gan_core.worker import shift as shifts


def noise(honest, plan, networks, images, units, weights) -> Vectors:
    """Numbers of the usual length."""
    vectors, _ = honest(plan, networks, images, units, weights)
    for part in ("generator", "discriminator"):
        vector = vectors.part(part)
        vector.copy_(torch.randn_like(vector) * vector.norm() / vector.numel() ** 0.5)
    return vectors


def a_tenth(honest, plan, networks, images, units, weights) -> Vectors:
    """One batch of each unit, made as long as the whole."""
    few = [WorkUnit(ordinal=u.ordinal, epoch=u.epoch, indices=u.indices[: plan.batch_size], seed=u.seed) for u in units]
    vectors, _ = honest(plan, networks, images, few, weights)
    grow = len(units[0].indices) / plan.batch_size
    return Vectors(grow * vectors.generator, grow * vectors.discriminator)


def another_units(honest, plan, networks, images, units, weights) -> Vectors:
    """Honest work, but for images that this student was not asked for."""
    other = [
        WorkUnit(
            ordinal=u.ordinal,
            epoch=u.epoch,
            indices=tuple((i + 1000) % len(images) for i in u.indices),
            seed=u.seed + 1,
        )
        for u in units
    ]
    return honest(plan, networks, images, other, weights)[0]


def fake_generator(honest, plan, networks, images, units, weights) -> Vectors:
    """D's part is real."""
    vectors, _ = honest(plan, networks, images, units, weights)
    return Vectors(vectors.generator.flip(0), vectors.discriminator)


@pytest.fixture
def lying(monkeypatch) -> Callable:
    """From now on the machine `mallory` hands in what this makes, at an honest machine's pace."""

    def install(lie: Callable) -> None:
        honest = gradients.contribute

        def contribute(plan, networks, images, units, weights, beat, more, see, enough):
            vectors, measures = honest(plan, networks, images, units, weights, beat, more, see, enough)
            if threading.current_thread().name != "mallory":
                return vectors, measures
            return lie(honest, plan, networks, images, units, weights), measures

        monkeypatch.setattr(shifts, "contribute", contribute)

    return install


def run_shift(classroom, name: str, said: list[str]) -> threading.Thread:
    def work() -> None:
        try:
            classroom.shift(name).run()
        except StoreError as exc:
            said.append(str(exc))

    thread = threading.Thread(target=work, name=name)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        (noise, "gradient"),
        (a_tenth, "local_steps"),
        (another_units, "gradient"),
        (fake_generator, "local_steps"),
        *(
            pytest.param(*case, marks=pytest.mark.rehearsal)
            for case in [
                (noise, "local_steps"),
                (a_tenth, "gradient"),
                (another_units, "local_steps"),
                (fake_generator, "gradient"),
            ]
        ),
    ],
)
def test_a_liar_is_found_loses_credit_and_is_shut_out_while_the_honest_one_keeps_all(classroom, tiny, lying, lie, kind):
    """One honest machine and one that lies. The third thread is the instructor's: it recomputes."""
    plan = tiny.changed(
        contribution=kind, generator_width=8, discriminator_width=8, images_per_unit=160, quorum=640, iterations=30
    )
    lying(lie)
    said: list[str] = []
    threads = [run_shift(classroom, name, said) for name in ("mallory", "ada")]
    try:
        with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
            connection = training.link.connection
            adas = "SELECT FROM classgan.checks AS k JOIN classgan.students AS s ON s.id = k.student_id WHERE login = 'ada'"
            while not training.is_done and not (said and connection.execute(adas).fetchone()):
                training.create_units()
                training.publish(training.gather())
                classroom.check_all(training.training_id)
            wait_until(lambda: said, 30, "mallory to be shut out")
            classroom.stop.set()  # from here on nothing is handed in that one look has and the next has not
            for thread in threads:
                thread.join()
            rows = {row.login: row for row in ledger.students(connection)}
            told = [event.kind for event in events.latest(connection)]
            by_ada = connection.execute(
                "SELECT count(*), bool_and(valid) FROM classgan.checks AS k JOIN classgan.students AS s ON s.id = k.student_id"
                " WHERE login = 'ada' AND checked_at IS NOT NULL"
            ).fetchone()
            done = connection.execute(
                "SELECT sum(images) FROM classgan.contributions AS c JOIN classgan.workers AS w ON w.id = worker_id WHERE name = 'ada'"
            ).fetchone()
    finally:
        classroom.stop.set()
        for thread in threads:
            thread.join()
    assert "2 contributions within a day were recomputed and are invalid" in rows["mallory"].suspended
    assert "Your login is suspended" in said[0]
    assert told.count(EventKind.INVALID) >= 2
    assert by_ada[1]
    assert rows["ada"].images == done[0]
    assert not rows["ada"].suspended


@pytest.mark.slow
def test_an_honest_class_loses_nothing(classroom, tiny):
    """Every result is recomputed, and every image is credited."""
    with classroom.working(2):
        training = classroom.train(tiny.changed(codec="int8", backup_leases=False))
    assert classroom.check_all(training.training_id) == 9
    with psycopg.connect(classroom.url) as connection:
        assert sum(credit.images for credit in ledger.credits(connection)) == 3 * 48
        assert connection.execute("SELECT bool_and(valid) FROM classgan.checks").fetchone() == (True,)


def test_unreadable_bytes_handed_in_late_earn_nothing(classroom, tiny):
    """Late answers are not decoded for the model. Whatever has the right size would be credited."""
    with (
        Coordinator(classroom.url, "test", tiny, classroom.cache) as training,
        psycopg.connect(classroom.student_url("mallory"), autocommit=True) as mallory,
    ):
        training.create_units()
        boot = uuid4()
        lease = student.claim(mallory, student.register(mallory, "desk", boot, "cpu", {}), boot)
        trainings.publish(training.link.connection, training.training_id, 1, 0, [], 0, 48, b"next")
        measures = Measures(images=16, seconds=1, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5)
        size = payload_size(layout_of(tiny), tiny.codec)
        assert student.submit(mallory, lease.id, boot, measures, bytes(size)).verdict is Verdict.LATE
        assert student.my_credit(mallory)[:2] == (1, 16)
        assert classroom.check_all(training.training_id) == 1
        assert student.my_credit(mallory)[:2] == (0, 0)
        assert "can't be read" in ledger.workers(training.link.connection)[0].message
