"""Versions of models and of data sets: numbered from 1 for each name, found again by NAME or NAME@VERSION, never changed."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.errors import DataError, TrainingError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")  # as a training's


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One version of a model, and where it came from."""

    id: int
    name: str
    version: int
    training: str
    run: int  # of that training
    plan_hash: str
    code_version: str
    iteration: int
    images: int  # seen in training
    data_source: str
    data_fingerprint: str
    figures: dict[str, Any] | None  # of the last evaluation before it
    created_at: datetime

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file of a model's version, without its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """One state of a data set."""

    id: int
    name: str
    version: int
    source: str  # as in a plan, with the revision
    fingerprint: str
    images: int
    registered_by: str
    created_at: datetime
    trainings: int  # that learned from these images

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"


Version = TypeVar("Version", ModelVersion, DataVersion)


def parted(label: str) -> tuple[str, int | None]:
    """("faces", 2) of "faces@2"; the version is None if the label has none: the newest is meant.

    Raises:
        DataError: it is neither NAME nor NAME@VERSION.
    """
    name, at, number = label.partition("@")
    if not NAME.fullmatch(name) or (at and not number.isascii()) or (at and not number.isdigit()):
        raise DataError(
            f"{label!r} names no version: write NAME or NAME@VERSION, for example faces@2; names have small letters, digits and dashes."
        )
    return name, int(number) if at else None


# Models

MODEL = (
    "SELECT m.id, m.name, m.version, t.name AS training, r.number AS run, r.plan_hash, r.code_version, m.iteration, m.images,"
    " t.data_source, t.data_fingerprint, m.figures, m.created_at FROM classgan.models AS m"
    " JOIN classgan.runs AS r ON r.id = m.run_id JOIN classgan.trainings AS t ON t.id = r.training_id"
)


def add_model(
    connection: Connection, name: str, training_id: int, iteration: int, images: int, files: Mapping[str, bytes]
) -> int:
    """Keep these files as the next version of this model; returns its number. The same iteration again is the same version."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"classgan model {name}",))
        run = connection.execute(
            "SELECT id FROM classgan.runs WHERE training_id = %s ORDER BY number DESC LIMIT 1", (training_id,)
        ).fetchone()
        if run is None:
            raise TrainingError("A model comes from a run, and this training never ran.")
        known = connection.execute(
            "SELECT version FROM classgan.models AS m JOIN classgan.runs AS r ON r.id = run_id"
            " WHERE m.name = %s AND training_id = %s AND m.iteration = %s",
            (name, training_id, iteration),
        ).fetchone()
        if known is not None:
            return known[0]
        row = connection.execute(
            "INSERT INTO classgan.models (name, version, run_id, iteration, images, figures)"
            " SELECT %(name)s, 1 + (SELECT count(*) FROM classgan.models WHERE name = %(name)s), %(run)s, %(iteration)s, %(images)s,"
            " (SELECT to_jsonb(e) - 'training_id' FROM classgan.evaluations AS e"
            "  WHERE training_id = %(training)s AND iteration <= %(iteration)s ORDER BY iteration DESC LIMIT 1)"
            " RETURNING id, version",
            {"name": name, "run": run[0], "training": training_id, "iteration": iteration, "images": images},
        ).fetchone()
        assert row is not None
        for file, content in files.items():
            connection.execute(
                "INSERT INTO classgan.artifacts (model_id, name, sha256, payload) VALUES (%s, %s, %s, %b)",
                (row[0], file, hashlib.sha256(content).hexdigest(), content),
            )
    return row[1]


def models(connection: Connection, name: str = "") -> list[ModelVersion]:
    """Versions of one model, or of all; the newest first."""
    with connection.cursor(row_factory=class_row(ModelVersion)) as cursor:
        return cursor.execute(
            f"{MODEL} WHERE %(name)s = '' OR m.name = %(name)s ORDER BY m.id DESC", {"name": name}
        ).fetchall()


def model(connection: Connection, label: str) -> ModelVersion:
    """The model NAME@VERSION, or the newest NAME. Raises DataError with what there is."""
    name, number = parted(label)
    if found := _chosen(there := models(connection, name), number):
        return found
    known = _listed([m.label for m in there or models(connection)])
    raise DataError(f"There is no model {label!r}. Models here: {known}.")


def artifacts(connection: Connection, model_id: int) -> list[Artifact]:
    with connection.cursor(row_factory=class_row(Artifact)) as cursor:
        return cursor.execute(
            "SELECT name, octet_length(payload) AS bytes, sha256 FROM classgan.artifacts WHERE model_id = %s ORDER BY name",
            (model_id,),
        ).fetchall()


def content(connection: Connection, model_id: int, name: str) -> bytes:
    """A file of a model's version. Raises DataError if it has none of this name, or if it isn't what was put in."""
    row = connection.execute(
        "SELECT payload, sha256 FROM classgan.artifacts WHERE model_id = %s AND name = %s",
        (model_id, name),
        binary=True,
    ).fetchone()
    if row is None:
        has = _listed([artifact.name for artifact in artifacts(connection, model_id)])
        raise DataError(f"This model has no file {name!r}. It has: {has}.")
    if hashlib.sha256(row[0]).hexdigest() != row[1]:
        raise DataError(
            f"{name} is damaged in the database (another hash than when it was stored). Restore the database from a "
            "backup."
        )
    return row[0]


# Data sets

DATA = (
    "SELECT d.*, (SELECT count(*) FROM classgan.trainings AS t WHERE t.data_fingerprint = d.fingerprint) AS trainings"
    " FROM classgan.data_versions AS d"
)


def add_data(
    connection: Connection, name: str, source: str, fingerprint: str, images: int, author: str
) -> tuple[DataVersion, bool]:
    """Keep this state of a data set; returns its version, and whether it is new: the same images are the same version."""
    if parted(name)[1] is not None:
        raise DataError(f"{name!r} names a version, but versions are counted automatically: write {parted(name)[0]}.")
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"classgan data {name}",))
        made = connection.execute(
            "INSERT INTO classgan.data_versions (name, version, source, fingerprint, images, registered_by)"
            " SELECT %(name)s, 1 + (SELECT count(*) FROM classgan.data_versions WHERE name = %(name)s),"
            " %(source)s, %(fingerprint)s, %(images)s, %(author)s ON CONFLICT (name, fingerprint) DO NOTHING",
            {"name": name, "source": source, "fingerprint": fingerprint, "images": images, "author": author},
        ).rowcount
    return next(d for d in data_versions(connection, name) if d.fingerprint == fingerprint), bool(made)


def data_versions(connection: Connection, name: str = "") -> list[DataVersion]:
    """Versions of one data set, or of all; the newest first."""
    with connection.cursor(row_factory=class_row(DataVersion)) as cursor:
        return cursor.execute(
            f"{DATA} WHERE %(name)s = '' OR d.name = %(name)s ORDER BY d.id DESC", {"name": name}
        ).fetchall()


def data_version(connection: Connection, label: str) -> DataVersion:
    """The data set NAME@VERSION, or the newest NAME. Raises DataError with what there is."""
    name, number = parted(label)
    if found := _chosen(there := data_versions(connection, name), number):
        return found
    known = _listed([d.label for d in there or data_versions(connection)])
    raise DataError(
        f"There is no data version {label!r}. Data versions here: {known}. Make one: classgan data register NAME DATA."
    )


def require_data(connection: Connection, label: str, name: str, fingerprint: str, facts: str, before: str) -> None:
    """Refuse images that aren't this state of a data set.

    Args:
        label: NAME@VERSION, or a fingerprint.
        name, fingerprint: of what is here.
        facts: the same and more, in words.
        before: the fingerprint that version 0.1 gave the same files.

    Raises:
        DataError: they aren't, or there is no such version.
    """
    version = data_version(connection, label) if "@" in label else None
    expected = version.fingerprint if version else label
    if fingerprint != expected:
        count = f" of {version.images:,} images from {version.source}" if version else ""
        same = " The files are the same: classgan 0.1 dropped transparency and read only JPEG and PNG."
        raise DataError(
            f"{name} is not {label} here ({facts}); {label} has the fingerprint {expected}{count}."
            f"{same if expected == before else ''} Restore them, or register these images as a version (classgan data "
            "register) and name that one in the plan."
        )


def _chosen(there: Sequence[Version], number: int | None) -> Version | None:
    """The one of this number; without one the first, which is the newest."""
    return next((found for found in there if number in (None, found.version)), None)


def _listed(labels: list[str]) -> str:
    return ", ".join(labels[:20]) or "none yet"
