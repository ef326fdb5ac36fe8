"""Evaluations beside a training: stored with what it took to get there, drawn as curves, and a collapse is noted once."""

import io
from dataclasses import replace

import pytest
from PIL import Image

from gan_core.quality import scores
from gan_core.settings import Settings
from gan_core.store.coordinator import evaluations, events
from gan_core.units import EventKind
from tasks.background import evaluate


@pytest.fixture
def training(classroom, tiny):
    with classroom.working(1):
        return classroom.train(tiny)


@pytest.fixture
def measured(training, classroom, monkeypatch, tmp_path):
    """Evaluates the training's last snapshot, as if it were one of another iteration with other figures."""
    monkeypatch.setattr(evaluate, "settings", lambda: Settings(database_url=classroom.url, outputs=tmp_path))
    monkeypatch.setattr(scores, "SAMPLES", 64)  # quick
    evaluator = evaluate.LazyEvaluator(training.images)
    real = scores.scores_of

    def run(iteration: int, **changes: float) -> str:
        monkeypatch.setattr(scores, "scores_of", lambda *given: replace(real(*given), **changes))
        snapshot = training.snapshot()
        snapshot.iteration = iteration
        return evaluate.evaluate.fn(snapshot, evaluator)

    return run


def test_figures_are_kept_with_images_and_seconds_and_drawn(measured, training, connection, tmp_path):
    said = measured(3)
    assert said.startswith("after iteration 3: random-feature distance ")
    (kept,) = evaluations.of_training(connection, training.training_id)
    assert (kept.iteration, kept.images, kept.protocol) == (3, training.state.images, scores.PROTOCOL)
    assert 0 < kept.seconds < 60
    assert kept.sentence() == said
    picture = Image.open(io.BytesIO((tmp_path / "test" / "curves.png").read_bytes()))
    assert picture.format == "PNG"
    assert picture.width > 600


@pytest.mark.slow
def test_measured_again_the_new_figures_replace_the_old(measured, training, connection):
    measured(3)
    measured(3, frechet=7.0)
    (kept,) = evaluations.of_training(connection, training.training_id)
    assert kept.frechet == 7


@pytest.mark.slow
def test_figures_of_another_protocol_are_left_out(measured, training, connection):
    measured(1)
    connection.execute("UPDATE classgan.evaluations SET protocol = 'an older one'")
    measured(2)
    assert [e.iteration for e in evaluations.of_training(connection, training.training_id)] == [2]


@pytest.mark.slow
def test_a_collapse_is_noted_when_it_begins(measured, training, connection):
    measured(1, diversity=0.9, coverage=0.5)
    for iteration in (2, 3):
        measured(iteration, diversity=0.1, coverage=0.5)
    (event,) = [e for e in events.latest(connection) if e.kind is EventKind.COLLAPSE]
    assert event.iteration == 2
    assert "diversity 10%, it was 90%" in event.text
