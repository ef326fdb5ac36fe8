"""What ran when and with what, and what came of it: looked up, compared, exported, kept as versions that never change."""

import json
import os
import re

import pandas
import psycopg
import pytest
import safetensors
from PIL import Image
from systems import is_only_its_owners

from gan_core.errors import DataError, TrainingError
from gan_core.exports import model_versions
from gan_core.networks import generators
from gan_core.quality import scores
from gan_core.settings import Settings
from gan_core.store.coordinator import runs, trainings, versions
from gan_core.units import TrainingState
from tasks.background import evaluate, keep_model


def push(training, folder):
    """What the task `push` writes."""
    generators.save(
        folder / "generator.safetensors",
        generators.finished(training.plan, training.state.average, training.state.iteration, training.state.images),
    )


def keep(connection, folder, model=""):
    pushed = generators.load(folder / "generator.safetensors")
    return model_versions.keep(connection, "lesson", folder, pushed.iteration, pushed.images, model)


@pytest.fixture
def trained(classroom, tiny, tmp_path):
    """A training of three iterations by two machines, with a generator in its folder."""
    with classroom.working(2):
        training = classroom.train(tiny, "lesson")
    push(training, tmp_path / "outputs" / "lesson")
    return training


# Runs


def test_each_start_is_a_run_and_the_database_notes_how_it_ended(classroom, connection, tiny):
    with classroom.working(1):
        classroom.train(tiny, until=1)  # its coordinator goes without a word, as if it had been killed
        (first,) = runs.every(connection, "test")
        assert (first.number, first.said, first.ended_at) == (1, "running", None)
        classroom.train(tiny.changed(iterations=2))
    second, first = runs.every(connection, "test")
    assert (first.outcome, first.first_iteration, first.last_iteration) == ("taken over", 0, 1)
    assert str(os.getpid()) in first.reason  # by whom
    assert (second.number, second.outcome, second.first_iteration, second.last_iteration) == (2, "succeeded", 1, 2)
    assert (first.plan_hash, second.plan_hash) == (tiny.fingerprint, tiny.changed(iterations=2).fingerprint)
    assert second.packages["torch"]
    assert second.started_at < second.ended_at


def test_a_run_that_fails_or_is_paused_says_why(classroom, connection, tiny, tmp_path):
    with pytest.raises(DataError):
        classroom.train(tiny.changed(data=f"folder:{tmp_path / 'nowhere'}"), "blind")
    (blind,) = runs.every(connection, "blind")
    assert blind.outcome == "failed"
    assert "nowhere" in blind.reason
    classroom.train(tiny, "still", until=0)
    row = trainings.get(connection, "still")
    trainings.control(connection, row.id, TrainingState.PAUSED, "ada", "paused by ada")
    (still,) = runs.every(connection, "still")
    assert (still.outcome, still.reason, still.last_iteration) == ("paused", "paused by ada", 0)


def test_measures_add_up_by_iteration_epoch_and_worker(trained, connection):
    by = {way: runs.metrics(connection, trained.training_id, way) for way in runs.METRICS}
    assert [row["iteration"] for row in by["iteration"]] == [1, 2, 3]
    (epoch,) = by["epoch"]  # three iterations of 48 images are less than 5,000
    assert (
        epoch["images"] == sum(row["images"] for row in by["iteration"]) == sum(row["images"] for row in by["worker"])
    )
    assert epoch["g_loss"] == pytest.approx(sum(row["g_loss"] for row in by["iteration"]) / 3)
    assert {row["student"] for row in by["worker"]} <= {"student0", "student1"}


@pytest.mark.slow
def test_iterations_know_their_epoch(classroom, connection, tiny):
    """2,500 images an iteration of 5,000 digits: the third iteration begins the second epoch."""
    plan = tiny.changed(images_per_unit=1250, batch_size=250, quorum=2500, max_units_per_lease=2)
    with classroom.working(1):
        training = classroom.train(plan)
    rows = runs.metrics(connection, training.training_id, "iteration")
    assert [row["epoch"] for row in rows] == [1, 1, 2]
    assert [row["images"] for row in runs.metrics(connection, training.training_id, "epoch")] == [5000, 2500]


def test_runs_are_listed_shown_and_exported(trained, classgan, tmp_path):
    assert "0 → 3" in classgan("runs", "list")
    shown = classgan("runs", "show", "lesson")
    for fact in ("lesson succeeded", trained.images.fingerprint, "torch ", "models none yet", "student0"):
        assert fact in shown
    (run,) = json.loads(classgan("runs", "list", "lesson", "--json"))
    assert run["plan_hash"] == trained.plan.fingerprint
    for ending, read in ((".csv", pandas.read_csv), (".parquet", pandas.read_parquet)):
        path = tmp_path / f"measures{ending}"
        assert "3 rows" in classgan("runs", "export", "lesson", "--out", str(path))
        assert list(read(path)["iteration"]) == [1, 2, 3]
    by_worker = tmp_path / "workers.csv"
    classgan("runs", "export", "lesson", "--out", str(by_worker), "--by", "worker")
    assert is_only_its_owners(by_worker)  # it holds names
    assert "a table is written as .csv or .parquet" in classgan("runs", "export", "lesson", "--out", "x.txt")
    assert "There is no training called 'other'. Trainings here: lesson." in classgan("runs", "list", "other")


@pytest.mark.slow
def test_a_comparison_shows_what_differs_and_draws_the_curves(trained, classroom, classgan, tiny, tmp_path):
    classroom.stop.clear()
    with classroom.working(1):
        classroom.train(tiny.changed(learning_rate_g=5e-4), "slower")
    out = tmp_path / "comparison.png"
    said = classgan("runs", "compare", "lesson", "slower", "--out", str(out))
    rows = {what: values for line in said.splitlines() for what, *values in [re.split("  +", line)]}
    assert rows["learning_rate_g"] == ["0.001", "0.0005"]
    assert rows["images seen"] == ["144", "144"]
    assert "batch_size" not in rows  # the same in both
    assert Image.open(out).width == 720
    assert "Name two trainings or more" in classgan("runs", "compare", "lesson", "lesson", "--out", str(out))
    told = json.loads(classgan("runs", "compare", "lesson", "slower", "--out", str(out), "--json"))
    assert (told["names"], told["differences"]) == (["lesson", "slower"], {"learning_rate_g": [0.001, 0.0005]})
    assert (told["results"]["images_seen"], told["results"]["frechet"]) == ([144, 144], [None, None])
    assert told["scores_comparable"] is True


def test_a_comparison_has_no_two_rows_of_one_name(trained, classroom, classgan, tiny, tmp_path):
    """The plans' iterations are one thing, those that were done another."""
    classroom.train(tiny.changed(iterations=9), "longer", until=0)
    said = classgan("runs", "compare", "lesson", "longer", "--out", str(tmp_path / "comparison.png"))
    rows = [re.split("  +", line) for line in said.splitlines()]
    assert [row for row in rows if "iterations" in row[0]] == [["iterations", "3", "9"], ["iterations done", "3", "0"]]


# Models


def test_the_end_of_a_training_keeps_its_model_once(trained, connection, database, tmp_path, monkeypatch):
    monkeypatch.setattr(keep_model, "settings", lambda: Settings(database_url=database, outputs=tmp_path / "outputs"))
    assert keep_model.keep_model.fn("lesson") == "lesson@1"
    assert keep_model.keep_model.fn("lesson") == "lesson@1"  # nothing new: the same version
    model = versions.model(connection, "lesson")
    assert (model.iteration, model.images, model.data_fingerprint) == (3, 144, trained.images.fingerprint)
    assert [f.name for f in versions.artifacts(connection, model.id)] == [
        "README.md",
        "config.json",
        "generator.safetensors",
    ]
    assert b"classgan generate model:lesson" in versions.content(connection, model.id, "README.md")


@pytest.mark.slow
def test_a_model_goes_back_to_what_was_measured_of_it(trained, classroom, connection, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "settings", lambda: Settings(database_url=classroom.url, outputs=tmp_path))
    monkeypatch.setattr(scores, "SAMPLES", 64)
    evaluate.evaluate.fn(trained.snapshot(), evaluate.LazyEvaluator(trained.images))
    keep(connection, tmp_path / "outputs" / "lesson", "digits")
    model = versions.model(connection, "digits@1")
    assert model.training == "lesson"
    assert model.figures["iteration"] == 3
    assert model.figures["frechet"] > 0


def test_versions_are_never_overwritten(trained, classroom, connection, tiny, tmp_path):
    folder = tmp_path / "outputs" / "lesson"
    keep(connection, folder)
    first = versions.model(connection, "lesson@1")
    before = versions.content(connection, first.id, "generator.safetensors")
    classroom.stop.clear()
    with classroom.working(1):
        push(classroom.train(tiny.changed(iterations=4), "lesson"), folder)
    assert keep(connection, folder) == "lesson@2"
    assert versions.content(connection, first.id, "generator.safetensors") == before
    assert versions.model(connection, "lesson").label == "lesson@2"
    for table, change in (("models", "iteration = 9"), ("artifacts", "payload = ''"), ("models", "version = 7")):
        with pytest.raises(psycopg.errors.CheckViolation, match="never changed"):
            connection.execute(f"UPDATE classgan.{table} SET {change}")


def test_a_kept_model_is_listed_shown_fetched_and_draws(trained, classgan, tmp_path):
    assert "No model is kept yet" in classgan("models", "list")
    assert "Kept as faces@1" in classgan("models", "keep", "lesson", "--as", "faces")
    assert "faces@1" in classgan("models", "list")
    shown = classgan("models", "show", "faces")
    assert "lesson, run 1, after iteration 3 and 144 images" in shown
    assert trained.images.fingerprint in shown
    assert "There is no model 'faces@2'. Models here: faces@1." in classgan("models", "show", "faces@2")
    assert "names no version" in classgan("models", "show", "../etc")
    classgan("models", "fetch", "faces@1", "--out", str(tmp_path / "fetched"))
    with safetensors.safe_open(tmp_path / "fetched" / "generator.safetensors", "pt") as file:
        assert file.metadata()["iteration"] == "3"
    drawn = tmp_path / "drawn.png"
    assert "4 images" in classgan("generate", "model:faces", "--count", "4", "--out", str(drawn))
    assert drawn.exists()


# Data


def test_the_same_images_are_the_same_version(classgan, connection, digits):
    said = classgan("data", "register", "mnist-part", "digits")
    assert f"5,000 images of digits, fingerprint {digits.fingerprint}, are mnist-part@1." in said
    assert "as it was already" in classgan("data", "register", "mnist-part", "digits")
    versions.add_data(connection, "mnist-part", "folder:more", "0" * 16, 6000, "ada")
    assert [d.label for d in versions.data_versions(connection)] == ["mnist-part@2", "mnist-part@1"]
    assert "folder:more" in classgan("data", "versions", "mnist-part")
    assert json.loads(classgan("data", "show", "mnist-part@1", "--json"))["fingerprint"] == digits.fingerprint
    assert "6,000" in classgan("data", "show", "mnist-part")
    assert "Data versions here: mnist-part@2, mnist-part@1" in classgan("data", "show", "mnist-part@3")
    assert "names no version" in classgan("data", "register", "No Name", "digits")


def test_a_training_that_names_a_version_is_refused_other_images(classroom, connection, digits, tiny):
    versions.add_data(connection, "digits", "digits", digits.fingerprint, len(digits), "ada")
    versions.add_data(connection, "digits", "elsewhere", "f" * 16, 7, "ada")
    for wanted in ("digits@1", digits.fingerprint):
        classroom.train(tiny.changed(data_version=wanted), f"fits-{wanted[:7].replace('@', '-')}", until=0)
    with pytest.raises(DataError, match=r"digits is not digits@2 here \(fingerprint \w+, 5,000 images\); digits@2 has"):
        classroom.train(tiny.changed(data_version="digits@2"), "misfit", until=0)
    assert trainings.get(connection, "misfit").state is TrainingState.FAILED
    with pytest.raises(DataError, match=r"There is no data version 'digits@3'"):
        classroom.train(tiny.changed(data_version="digits@3"), "lost", until=0)
    assert trainings.find(connection, "lost") is None


def test_a_submission_with_an_unknown_version_takes_no_place(classgan, connection):
    said = classgan("submit", "demo", "--name", "lost", "--set", "data_version=faces@1")
    assert said.startswith("There is no data version 'faces@1'")
    assert trainings.find(connection, "lost") is None


# MLflow


@pytest.mark.slow  # importing it takes seconds
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own, of the libraries below it
def test_a_training_is_mirrored_into_mlflow_and_again_only_what_is_new(
    trained, classroom, connection, classgan, tiny, tmp_path, monkeypatch
):
    """MLflow's own store, in a file: what a server keeps its runs in."""
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)  # files of runs lie beside it
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    classgan("models", "keep", "lesson")
    assert "lesson is run" in classgan("runs", "mirror", "lesson", "--to", uri)
    client = MlflowClient(tracking_uri=uri)
    where = [client.get_experiment_by_name("classgan").experiment_id]
    (run,) = client.search_runs(where)
    assert (run.info.run_name, run.info.status) == ("lesson", "FINISHED")
    assert run.data.params["learning_rate_g"] == "0.001"
    assert run.data.tags["classgan.plan_hash"] == tiny.fingerprint
    assert {f.path for f in client.list_artifacts(run.info.run_id, "lesson@1")} >= {"lesson@1/generator.safetensors"}
    classroom.stop.clear()
    with classroom.working(1):
        classroom.train(tiny.changed(iterations=4), "lesson")
    classgan("runs", "mirror", "lesson", "--to", uri)
    (run,) = client.search_runs(where)
    ours = [row["g_loss"] for row in runs.metrics(connection, trained.training_id, "iteration")]
    assert [m.value for m in client.get_metric_history(run.info.run_id, "g_loss")] == ours
    assert "Say where" in classgan("runs", "mirror", "lesson")
    assert "did not take" in classgan("runs", "mirror", "lesson", "--to", "gopher://nowhere")


def test_no_training_no_model(connection, tmp_path):
    with pytest.raises(TrainingError, match="There is no training called 'none'"):
        model_versions.keep(connection, "none", tmp_path, 1, 1)
