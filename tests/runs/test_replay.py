"""The ledger is the training: whoever computes again what it counts, in its order, finds the class's weights."""

import psycopg
import pytest
from answering import Machine

from gan_core.coordinator.coordinator import Coordinator
from gan_core.coordinator.replay import replay
from gan_core.errors import TrainingError
from gan_core.store import student
from gan_core.store.coordinator import trainings
from gan_core.units import Measures, Verdict


@pytest.fixture
def plan(tiny):
    return tiny.changed(
        codec="int4",
        weights_codec="int4",
        quorum="auto",
        images_per_unit=160,
        target_seconds=0.5,
        max_units_per_lease=4,
        iterations=8,
        lease_seconds=2,
    )


@pytest.fixture
def connection(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield connection


def spoiled(connection, lease) -> bytes:
    """As many bytes as a contribution has, and no contribution."""
    row = connection.execute(
        "SELECT payload_bytes FROM classgan.trainings WHERE id = %s", (lease.training_id,)
    ).fetchone()
    return bytes(row[0])


def test_a_class_in_which_everything_happens_gives_the_weights_that_its_ledger_says(
    classroom, connection, plan, digits
):
    """Rounds that close in time, another batch size on the way, a machine that dies, a late answer and a refused one."""
    classroom.student_url("mallory"), classroom.student_url("hedy")
    told = Measures(images=10**6, seconds=1, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5)
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training, classroom.working(2):
        mallory, hedy = Machine(classroom.url, "mallory", "desk"), Machine(classroom.url, "hedy", "desk")
        mine = dead = None
        while not training.is_done:
            number = training.state.iteration
            training.create_units()
            if number and mine is None:  # whoever comes late to a round of half a second finds nothing
                if mine := mallory.claim():
                    student.submit(mallory.connection, mine.id, mallory.boot, told, spoiled(connection, mine))
            elif number and dead is None:
                dead = hedy.claim()
            if number == 3:
                trainings.want_plan(
                    connection, training.training_id, plan.changed(batch_size=16).model_dump(mode="json"), "a test"
                )
            training.publish(training.gather())
        training.finish()
        assert dead is not None
        answer = student.submit(hedy.connection, dead.id, hedy.boot, told, spoiled(connection, dead))
        assert answer.verdict is Verdict.LATE
    ask = lambda query: connection.execute(query).fetchall()  # noqa: E731
    verdicts = {verdict for (verdict,) in ask("SELECT DISTINCT verdict::text FROM classgan.contributions")}
    assert verdicts >= {"accepted", "refused", "late"}
    assert len(ask("SELECT DISTINCT plan_version FROM classgan.iterations")) == 2
    cut = "SELECT count(*) FROM classgan.contributions WHERE verdict = 'accepted' AND images % 160 <> 0"
    assert ask(cut)[0][0] > 0
    again = replay(connection, "test", digits)
    assert (again.iteration, again.images, again.distance) == (plan.iterations, training.state.images, 0.0)


def test_an_image_more_or_less_is_noticed(classroom, connection, tiny, digits):
    with classroom.working(2):
        classroom.train(tiny)
    assert replay(connection, "test", digits).distance == 0
    connection.execute(
        "UPDATE classgan.contributions SET slices = jsonb_set(slices, '{0,0}', '7') WHERE id = (SELECT min(id) FROM classgan.contributions)"
    )
    assert replay(connection, "test", digits).distance > 0


def test_a_training_of_an_earlier_version_says_why_not(classroom, connection, tiny, digits):
    with classroom.working(2):
        classroom.train(tiny)
    connection.execute("UPDATE classgan.contributions SET slices = NULL WHERE iteration = 1")
    with pytest.raises(TrainingError, match="from which images iteration 1 was made, its version of classgan"):
        replay(connection, "test", digits)


def test_without_a_checkpoint_there_is_nothing_to_compare_with(connection, tiny, digits):
    trainings.create(connection, "new", tiny.model_dump(mode="json"))
    with pytest.raises(TrainingError, match="'new' has no checkpoint yet"):
        replay(connection, "new", digits)
