"""Keeps the files of a training as a version of its model."""

from pathlib import Path

from psycopg import Connection

from gan_core.exports import reports
from gan_core.store.coordinator import trainings, versions


def keep(connection: Connection, name: str, folder: Path, iteration: int, images: int, model: str = "") -> str:
    """Keep what `push` has written as the next version of a model; returns its label, NAME@VERSION.

    Args:
        folder: of this training's files.
        iteration, images: of the generator in that folder.
        model: the model's name; left out, the one in the plan, or else the training's.

    Raises:
        DataError: this is no name for a model.
        TrainingError: there is no such training.
    """
    row, told = trainings.get(connection, name), reports.training_record(connection, name)
    label = versions.parted(model or told.plan.model_name or name)[0]
    files = reports.repository(told, folder, f"model:{label}", iteration, images)
    return f"{label}@{versions.add_model(connection, label, row.id, iteration, images, files)}"
