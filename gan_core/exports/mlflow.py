"""A training in MLflow: its plan as parameters, what each iteration measured, the files of its newest model."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from gan_core.errors import MirrorError
from gan_core.plan import checked_plan
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
)
FIGURES = (
    "frechet",
    "kid",
    "kid_error",
    "wasserstein",
    "diversity",
    "coverage",
    "fid",
    "inception_distance",
)  # an evaluation's, which comes later
AT_ONCE = 900  # metrics in one request; MLflow takes 1,000
MIRRORED = "classgan.iteration"  # tag: up to here everything is there
STATUS = {
    TrainingState.SUCCEEDED: "FINISHED",
    TrainingState.FAILED: "FAILED",
    TrainingState.CANCELLED: "KILLED",
    TrainingState.QUEUED: "SCHEDULED",
}


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What a mirroring led to."""

    run_id: str  # MLflow's
    changed: (
        str  # in words, what the plan has otherwise than the parameters, which MLflow keeps for good; "" if nothing
    )


def mirror(connection: Connection, name: str, uri: str) -> Mirrored:
    """Bring the MLflow run of this training up to date. What is there already isn't sent again, what lacks is.

    Args:
        uri: of the tracking server, such as http://127.0.0.1:5000.

    Raises:
        MirrorError: MLflow isn't installed, doesn't answer or refuses.
        TrainingError: there is no such training.
    """
    row = trainings.get(connection, name)
    past = runs.every(connection, name, limit=1_000_000)
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
        run_id = _run_of(client, row, past)
        changed = _send_plan(client, run_id, row.plan, past[-1].plan if past else row.plan)
        measures = runs.metrics(connection, row.id, "iteration")
        _send_iterations(client, run_id, measures)
        _send_evaluations(client, run_id, measures)
        _send_tags(client, run_id, row, past, changed)
        _send_files(client, run_id, connection, name)
        _send_status(client, run_id, row.state, past)
    except (MlflowException, OSError) as exc:
        raise MirrorError(
            f"MLflow at {uri} did not take {name!r}: {str(exc).splitlines()[0]} Mirror it again: what lacks is sent then."
        ) from exc
    return Mirrored(run_id, changed)


def _run_of(client: "MlflowClient", row: trainings.TrainingRow, past: Sequence[runs.Run]) -> str:
    """The MLflow run with this training's number and name; made if there is none."""
    experiment = client.get_experiment_by_name(EXPERIMENT)
    where = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
    mine = f"tags.`classgan.training` = '{row.name}' AND tags.`classgan.id` = '{row.id}'"
    if there := client.search_runs([where], mine, max_results=1):
        return there[0].info.run_id
    began = _milliseconds(past[-1].started_at) if past else None
    tags = {"classgan.training": row.name, "classgan.id": str(row.id)}
    return client.create_run(where, start_time=began, tags=tags, run_name=row.name).info.run_id


def _send_plan(client: "MlflowClient", run_id: str, now: Mapping[str, Any], began: Mapping[str, Any]) -> str:
    """The plan as the training began, as far as it isn't there; returns what differs from it now, in words."""
    from mlflow.entities import Param

    there = client.get_run(run_id).data.params
    lacks = {knob: _text(value) for knob, value in began.items() if knob not in there}
    if lacks:
        client.log_batch(run_id, params=[Param(knob, value) for knob, value in lacks.items()])
    known = there | lacks
    return ", ".join(
        f"{knob} {known[knob]} → {_text(value)}"
        for knob, value in now.items()
        if knob in known and known[knob] != _text(value)
    )


def _send_iterations(client: "MlflowClient", run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A tag notes how far they are sent: sent twice, MLflow would keep them once, but it takes long."""
    from mlflow.entities import RunTag

    there = int(client.get_run(run_id).data.tags.get(MIRRORED, 0))
    for part in _parts([row for row in rows if row["iteration"] > there], MEASURED):
        tags = [RunTag(MIRRORED, str(part[-1]["iteration"]))]
        client.log_batch(run_id, metrics=_metrics(part, MEASURED, "closed_at"), tags=tags)


def _send_evaluations(client: "MlflowClient", run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Those that aren't there: an evaluation may end when later iterations were mirrored, and may be made anew."""
    there = {(metric.step, metric.value) for metric in client.get_metric_history(run_id, "frechet")}
    new = [row for row in rows if row["measured_at"] and (row["iteration"], row["frechet"]) not in there]
    for part in _parts(new, FIGURES):
        client.log_batch(run_id, metrics=_metrics(part, FIGURES, "measured_at"))


def _parts(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[Sequence[Mapping[str, Any]]]:
    step = AT_ONCE // len(keys)
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def _metrics(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], moment: str) -> list[Any]:
    """With the time of their measuring, and their iteration as the step."""
    from mlflow.entities import Metric

    return [
        Metric(key, float(row[key]), _milliseconds(row[moment]), row["iteration"])
        for row in rows
        for key in keys
        if row[key] is not None
    ]


def _send_tags(
    client: "MlflowClient", run_id: str, row: trainings.TrainingRow, past: Sequence[runs.Run], changed: str
) -> None:
    from mlflow.entities import RunTag

    tags = {
        "state": row.state,
        "message": row.message,
        "data": row.data_source,
        "data_fingerprint": row.data_fingerprint,
        "plan_hash": checked_plan(row.plan).fingerprint,
        "plan_changes": changed or "none",
    }
    for run in past[:1]:
        tags |= {"run": str(run.number), "code_version": run.code_version}
        tags |= {f"version.{package}": version for package, version in run.packages.items()}
    client.log_batch(run_id, tags=[RunTag(f"classgan.{key}", value) for key, value in tags.items()])


def _send_files(client: "MlflowClient", run_id: str, connection: Connection, name: str) -> None:
    """The newest model that came from this training, in a folder called after its version; of older ones, what lacks."""
    made = [model for model in versions.models(connection) if model.training == name]
    for model in made:
        there = {PurePosixPath(f.path).name: f.file_size for f in client.list_artifacts(run_id, model.label)}
        if model is not made[0] and not there:
            continue
        lacks = [
            file
            for file in versions.artifacts(connection, model.id)
            if file.name not in there or there[file.name] not in (None, file.bytes)  # None: this store doesn't tell
        ]
        with tempfile.TemporaryDirectory() as folder:
            for file in lacks:
                path = Path(folder) / file.name
                path.write_bytes(versions.content(connection, model.id, file.name))
                client.log_artifact(run_id, str(path), model.label)
                path.unlink()


def _send_status(client: "MlflowClient", run_id: str, state: TrainingState, past: Sequence[runs.Run]) -> None:
    status = STATUS.get(state, "RUNNING")
    if status not in ("FINISHED", "FAILED", "KILLED"):
        client.update_run(run_id, status)
        return
    ended = past[0].ended_at if past else None
    client.set_terminated(run_id, status, _milliseconds(ended or datetime.now(UTC)))


def _text(value: object) -> str:
    return str(value) or "none"


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
