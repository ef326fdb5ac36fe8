"""A training in MLflow: its plan as parameters, what each iteration measured, the files of its newest model."""

import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import Connection

from gan_core.errors import MirrorError
from gan_core.store.coordinator import runs, trainings, versions
from gan_core.units import TrainingState

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "classgan"
MEASURED = (
    "images",
    "contributions",
    "workers",
    "seconds",
    "g_loss",
    "d_loss",
    "d_real_accuracy",
    "d_fake_accuracy",
    "frechet",
    "wasserstein",
    "diversity",
    "coverage",
    "fid",
)
AT_ONCE = 900  # metrics in one request; MLflow takes 1,000
MIRRORED = "classgan.iteration"  # tag: up to here everything is there
STATUS = {
    TrainingState.SUCCEEDED: "FINISHED",
    TrainingState.FAILED: "FAILED",
    TrainingState.CANCELLED: "KILLED",
    TrainingState.QUEUED: "SCHEDULED",
}


def mirror(connection: Connection, name: str, uri: str) -> str:
    """Bring the MLflow run of this training up to date; returns the run's id. What is there already isn't sent again.

    Args:
        uri: of the tracking server, such as http://127.0.0.1:5000.

    Raises:
        MirrorError: MLflow isn't installed, doesn't answer or refuses.
        TrainingError: there is no such training.
    """
    row = trainings.get(connection, name)
    try:
        from mlflow import MlflowClient
        from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES
        from mlflow.exceptions import MlflowException
    except ImportError as exc:
        raise MirrorError("A copy to MLflow needs its library: pip install 'classgan[mlflow]'.") from exc
    if not MLFLOW_HTTP_REQUEST_MAX_RETRIES.is_set():
        MLFLOW_HTTP_REQUEST_MAX_RETRIES.set(2)  # seven would take minutes when nobody is there
    try:
        client = MlflowClient(tracking_uri=uri)
        run_id = _run_of(client, row)
        _send_metrics(client, run_id, runs.metrics(connection, row.id, "iteration"))
        _send_tags(client, run_id, row, runs.every(connection, name, limit=1))
        _send_files(client, run_id, connection, name)
        status = STATUS.get(row.state, "RUNNING")
        ended = _milliseconds(datetime.now().astimezone()) if status in ("FINISHED", "FAILED", "KILLED") else None
        client.set_terminated(run_id, status, ended) if ended else client.update_run(run_id, status)
    except (MlflowException, OSError) as exc:
        raise MirrorError(f"MLflow at {uri} did not take {name!r}: {str(exc).splitlines()[0]}") from exc
    return run_id


def _run_of(client: "MlflowClient", row: trainings.TrainingRow) -> str:
    """The MLflow run with this training's number and name; made if there is none."""
    from mlflow.entities import Param

    experiment = client.get_experiment_by_name(EXPERIMENT)
    where = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
    mine = f"tags.`classgan.training` = '{row.name}' AND tags.`classgan.id` = '{row.id}'"
    if there := client.search_runs([where], mine, max_results=1):
        return there[0].info.run_id
    tags = {"classgan.training": row.name, "classgan.id": str(row.id)}
    run_id = client.create_run(where, tags=tags, run_name=row.name).info.run_id
    client.log_batch(run_id, params=[Param(knob, str(value) or "none") for knob, value in row.plan.items()])
    return run_id


def _send_metrics(client: "MlflowClient", run_id: str, rows: Sequence[dict]) -> None:
    from mlflow.entities import Metric, RunTag

    there = int(client.get_run(run_id).data.tags.get(MIRRORED, 0))
    new = [row for row in rows if row["iteration"] > there]
    step = AT_ONCE // len(MEASURED)
    for start in range(0, len(new), step):
        part = new[start : start + step]
        metrics = [
            Metric(key, float(row[key]), _milliseconds(row["closed_at"]), row["iteration"])
            for row in part
            for key in MEASURED
            if row[key] is not None
        ]
        client.log_batch(run_id, metrics=metrics, tags=[RunTag(MIRRORED, str(part[-1]["iteration"]))])


def _send_tags(client: "MlflowClient", run_id: str, row: trainings.TrainingRow, latest: Sequence[runs.Run]) -> None:
    from mlflow.entities import RunTag

    tags = {
        "state": row.state,
        "message": row.message,
        "data": row.data_source,
        "data_fingerprint": row.data_fingerprint,
    }
    for run in latest:
        tags |= {"run": str(run.number), "plan_hash": run.plan_hash, "code_version": run.code_version}
        tags |= {f"version.{package}": version for package, version in run.packages.items()}
    client.log_batch(run_id, tags=[RunTag(f"classgan.{key}", value) for key, value in tags.items()])


def _send_files(client: "MlflowClient", run_id: str, connection: Connection, name: str) -> None:
    """The newest model that came from this training, in a folder called after its version."""
    model = next((m for m in versions.models(connection) if m.training == name), None)
    if model is None or client.list_artifacts(run_id, model.label):
        return
    with tempfile.TemporaryDirectory() as folder:
        for artifact in versions.artifacts(connection, model.id):
            path = Path(folder) / artifact.name
            path.write_bytes(versions.content(connection, model.id, artifact.name))
        client.log_artifacts(run_id, folder, model.label)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
