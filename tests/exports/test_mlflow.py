"""A mirror in MLflow is mended by the next one: whatever lacks is sent, with the time when it was, and nothing twice."""

import shutil
from pathlib import Path
from urllib.parse import urlparse

import pytest
from crowd import fill
from psycopg.types.json import Jsonb

from gan_core.exports.mlflow import mirror
from gan_core.store.coordinator import evaluations, runs, versions
from gan_core.store.coordinator.evaluations import Evaluation

pytestmark = [
    pytest.mark.slow,  # importing MLflow takes seconds, and so does its first database
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # its own, of the libraries below it
]
FILES = {f"{n}.bin": bytes([n]) * 1_000 for n in range(7)}


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """MLflow's own store, in a file: what a server keeps its runs in."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(empty, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files of runs lie beside it
    return f"sqlite:///{shutil.copy(empty, tmp_path)}"


@pytest.fixture
def client(uri):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


@pytest.fixture
def lesson(connection, tiny) -> int:
    """A training of six iterations that ran for forty minutes, an hour ago."""
    training = fill(connection, 1, 6, tiny, "lesson")
    runs.begin(connection, training, tiny.model_dump(mode="json"))
    connection.execute(
        "UPDATE classgan.runs SET started_at = now() - interval '100 min', ended_at = now() - interval '1 h'"
    )
    connection.execute("UPDATE classgan.trainings SET state = 'succeeded'")
    return training


def measure(connection, training: int, iteration: int, frechet: float) -> None:
    facts = {"images": 48, "seconds": 1.0, "took": 1.0, "protocol": "p", "wasserstein": 2.0, "diversity": 0.5}
    evaluations.save(
        connection, training, Evaluation(iteration=iteration, frechet=frechet, coverage=0.25, fid=None, **facts)
    )
    connection.execute("UPDATE classgan.evaluations SET measured_at = now() - interval '30 min' WHERE iteration = 2")


def moment(connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0].timestamp() * 1000)


def test_a_figure_that_comes_after_its_iterations_mirror_is_there_in_the_next(connection, lesson, uri, client):
    measure(connection, lesson, 4, 40.0)
    run = mirror(connection, "lesson", uri).run_id
    measure(connection, lesson, 2, 20.0)  # it took long
    for _ in range(2):
        mirror(connection, "lesson", uri)
    told = {metric.step: metric for metric in client.get_metric_history(run, "frechet")}
    assert {step: metric.value for step, metric in told.items()} == {2: 20.0, 4: 40.0}
    assert told[2].timestamp == moment(connection, "SELECT measured_at FROM classgan.evaluations WHERE iteration = 2")
    assert len(client.get_metric_history(run, "coverage")) == 2
    assert [metric.step for metric in client.get_metric_history(run, "g_loss")] == [1, 2, 3, 4, 5, 6]
    measure(connection, lesson, 4, 39.0)  # measured anew
    mirror(connection, "lesson", uri)
    assert [metric.value for metric in client.get_metric_history(run, "frechet") if metric.step == 4] == [40.0, 39.0]
    assert client.get_run(run).data.metrics["frechet"] == 39.0


def test_an_upload_that_was_cut_is_mended(connection, lesson, uri, client):
    versions.add_model(connection, "lesson", lesson, 3, 144, FILES)
    run = mirror(connection, "lesson", uri).run_id
    folder = Path(urlparse(client.get_run(run).info.artifact_uri).path) / "lesson@1"
    for newest in (True, False):
        for n in range(2, 7):
            (folder / f"{n}.bin").unlink()
        (folder / "1.bin").write_bytes(b"half")
        (folder / "0.bin").touch()
        mirror(connection, "lesson", uri)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == FILES, newest
        versions.add_model(connection, "lesson", lesson, 4, 192, FILES)  # lesson@1 isn't the newest any more
        mirror(connection, "lesson", uri)
    assert {file.path for file in client.list_artifacts(run)} == {"lesson@1", "lesson@2"}


def test_a_file_that_is_there_is_not_sent_again(connection, lesson, uri, client):
    versions.add_model(connection, "lesson", lesson, 3, 144, FILES)
    run = mirror(connection, "lesson", uri).run_id
    folder = Path(urlparse(client.get_run(run).info.artifact_uri).path) / "lesson@1"
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    mirror(connection, "lesson", uri)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_the_runs_times_are_the_trainings(connection, lesson, uri, client):
    info = client.get_run(mirror(connection, "lesson", uri).run_id).info
    assert info.status == "FINISHED"
    assert info.start_time == moment(connection, "SELECT started_at FROM classgan.runs")
    assert info.end_time == moment(connection, "SELECT ended_at FROM classgan.runs")


def test_a_changed_plan_is_told_beside_the_parameters_that_stay(connection, lesson, uri, client, tiny, classgan):
    first = mirror(connection, "lesson", uri)
    assert first.changed == ""
    changed = tiny.changed(learning_rate_g=0.0005, iterations=9)
    connection.execute("UPDATE classgan.trainings SET plan = %s", (Jsonb(changed.model_dump(mode="json")),))
    said = classgan("runs", "mirror", "lesson", "--to", uri)
    assert "Changed since: iterations 3 → 9, learning_rate_g 0.001 → 0.0005." in said
    data = client.get_run(first.run_id).data
    assert data.tags["classgan.plan_changes"] == "iterations 3 → 9, learning_rate_g 0.001 → 0.0005"
    assert data.tags["classgan.plan_hash"] == changed.fingerprint
    assert data.params["learning_rate_g"] == "0.001"
    connection.execute("UPDATE classgan.trainings SET plan = %s", (Jsonb(tiny.model_dump(mode="json")),))
    mirror(connection, "lesson", uri)
    assert client.get_run(first.run_id).data.tags["classgan.plan_changes"] == "none"


def test_a_run_that_was_made_and_no_more_gets_its_parameters(connection, lesson, uri, client, tiny):
    tags = {"classgan.training": "lesson", "classgan.id": str(lesson)}
    made = client.create_run(client.create_experiment("classgan"), tags=tags).info.run_id
    assert mirror(connection, "lesson", uri).run_id == made
    assert client.get_run(made).data.params == {k: str(v) or "none" for k, v in tiny.model_dump(mode="json").items()}
