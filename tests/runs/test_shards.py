"""A machine that has just come computes with the first file of the data while the others are still on their way."""

import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from classroom import Classroom, same_bits
from fake_hub import Repo
from picture_files import parquet
from poll import wait_until

from deployments.student.doctor import Doctor, Doubt
from gan_core.coordinator.coordinator import Coordinator
from gan_core.networks.reference import train_local
from gan_core.settings import settings
from gan_core.worker.shift import Shift

FIRST, SECOND = "train-0.parquet", "train-1.parquet"


@pytest.fixture
def plan(tiny):
    return tiny.changed(data="huggingface:ada/faces", channels=3, iterations=4)


@pytest.fixture
def faces(hub) -> Repo:
    hub.repos["ada/faces"] = Repo("dataset", {FIRST: parquet(range(48)), SECOND: parquet(range(48, 96))})
    return hub.repos["ada/faces"]


@contextmanager
def at_work(classroom: Classroom, home: Path, name: str = "ada"):
    """A student's machine with nothing on its disk yet."""
    shift = Shift(classroom.student_url(name), name, "cpu", home, should_stop=classroom.stop.is_set)
    thread = threading.Thread(target=shift.run)
    thread.start()
    try:
        yield shift
    finally:
        classroom.stop.set()
        thread.join()


def lead(training: Coordinator) -> None:
    while not training.is_done:
        training.create_units()
        training.publish(training.gather())
    training.finish()


@pytest.mark.slow
def test_the_first_contribution_comes_before_the_second_file_and_the_result_is_the_same(
    classroom, faces, plan, hub, tmp_path, connection
):
    def contributions() -> int:
        return connection.execute("SELECT count(*) FROM classgan.contributions").fetchone()[0]

    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        hub.hold[SECOND] = gate = threading.Event()
        leader = threading.Thread(target=lead, args=(training,))
        with at_work(classroom, tmp_path / "home") as shift:
            leader.start()
            try:
                wait_until(lambda: contributions() > 0, what="the first contribution")
                assert shift._delivery.ready == 48
                assert not list((tmp_path / "home").rglob(SECOND))
            finally:
                gate.set()
            leader.join()
            assert shift._delivery.is_complete
    assert connection.execute("SELECT count(*) FROM classgan.events WHERE kind = 'given back'").fetchone() == (0,)
    assert same_bits(training.state, train_local(plan, training.images))


def test_a_training_that_goes_on_reads_the_revision_it_began_with(classroom, faces, plan, hub, connection):
    """Somebody has pushed to the data set meanwhile."""
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        before = training.images.fingerprint
    faces.commit = "b" * 40
    faces.files[FIRST] = parquet(range(100, 148))
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        assert training.images.fingerprint == before
        assert training.images.source.endswith("@" + "a" * 40)
    with Coordinator(classroom.url, "other", plan, classroom.cache) as training:
        assert training.images.fingerprint != before


def test_a_shard_that_is_other_data_is_never_computed_with(classroom, faces, plan, tmp_path, connection, caplog):
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        connection.execute(
            "UPDATE classgan.trainings SET data_shards = jsonb_set(data_shards, '{0,fingerprint}', '\"feedfeedfeedfeed\"')"
        )
        training.create_units()
        with at_work(classroom, tmp_path / "home"):
            wait_until(lambda: "File 1 of huggingface:ada/faces" in caplog.text, what="the warning")
            assert "feedfeedfeedfeed" in caplog.text
        assert connection.execute("SELECT count(*) FROM classgan.leases").fetchone() == (0,)


def test_the_unit_size_cannot_change_where_units_end_with_their_shard(plan):
    assert plan.conflicts_with(plan.changed(images_per_unit=24)) == ["images_per_unit"]
    assert plan.changed(shards="off").conflicts_with(plan.changed(shards="off", images_per_unit=24)) == []


def test_the_doctor_says_that_the_data_can_be_fetched_or_why_not(classroom, faces, plan, tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSGAN_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    doctor = object.__new__(Doctor)  # this check needs the class only
    doctor.home = classroom.student_url("ada")
    try:
        with Coordinator(classroom.url, "test", plan, classroom.cache):
            assert "the images of test (2 files) can be fetched" in doctor.data()
            assert not list((tmp_path / "home").rglob("*.parquet"))
            monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
            with pytest.raises(Doubt, match=r"training 'test': .* `pip install 'classgan\[hub\]'"):
                doctor.data()
    finally:
        settings.cache_clear()
