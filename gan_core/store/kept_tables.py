"""The tables that stay after a training: its history, its samples, its runs, the versions of its models and data."""

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gan_core.store.columns import identity, metadata, now, of_training

events = Table(
    "events",
    metadata,
    identity(),
    of_training(),
    now("at"),
    Column("kind", Text, nullable=False),  # one of units.EventKind
    Column("iteration", Integer, nullable=False),
    Column("text", Text, nullable=False),  # a sentence for people
    Index(None, "training_id", "id"),
    comment="What happened beyond the ordinary, one sentence each; the latest ones.",
)

samples = Table(
    "samples",
    metadata,
    of_training(),
    Column("iteration", Integer, nullable=False),
    Column("png", LargeBinary, nullable=False),
    now("created_at"),
    UniqueConstraint("training_id", "iteration"),
    comment="Grids drawn from the same noise.",
)

evaluations = Table(
    "evaluations",
    metadata,
    of_training(),
    Column("iteration", Integer, nullable=False),
    Column("images", BigInteger, nullable=False),  # seen in training
    Column("seconds", Double, nullable=False),  # of training, without pauses
    Column("took", Double, nullable=False),  # seconds of measuring
    Column("protocol", Text, nullable=False),  # only figures of the same one can be compared
    Column("frechet", Double, nullable=False),
    Column("wasserstein", Double, nullable=False),
    Column("diversity", Double, nullable=False),
    Column("coverage", Double, nullable=False),
    Column("inception_distance", Double),  # of 1,024 samples: version 0.1 called it FID
    now("measured_at"),
    Column("kid", Double),
    Column("kid_error", Double),  # its standard error
    Column("fid", Double),  # of 10,000 samples, where Inception's weights were there
    UniqueConstraint("training_id", "iteration"),
    comment="How good the samples were after an iteration.",
)

runs = Table(
    "runs",
    metadata,
    identity(),
    of_training(),
    Column("number", Integer, nullable=False),  # of this training, from 1
    Column("plan", JSONB, nullable=False),  # as it began; changes meanwhile are events
    Column("plan_hash", Text, nullable=False),
    Column("code_version", Text, nullable=False),
    Column("packages", JSONB, nullable=False),  # what computes: name → version
    Column("place", Text, nullable=False),  # host and process of its coordinator
    Column("first_iteration", Integer, nullable=False),
    now("started_at"),
    Column("ended_at", DateTime(timezone=True)),
    Column("last_iteration", Integer),
    Column("outcome", Text, nullable=False, server_default=""),  # the state that it ended in; or taken over
    Column("reason", Text, nullable=False, server_default=""),  # a sentence for people
    UniqueConstraint("training_id", "number"),
    Index("ix_runs_open", "training_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    comment="One row a time that a coordinator led a training: with what, from when to when, and why it ended.",
)

models = Table(
    "models",
    metadata,
    identity(),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),  # of this name, from 1
    Column("run_id", BigInteger, ForeignKey("classgan.runs.id"), nullable=False),  # leads to training, plan and data
    Column("iteration", Integer, nullable=False),
    Column("images", BigInteger, nullable=False),  # seen in training
    Column("figures", JSONB),  # the last evaluation before it
    now("created_at"),
    UniqueConstraint("name", "version"),
    Index(None, "run_id"),
    comment="One row a version of a model; never changed.",
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("model_id", BigInteger, ForeignKey("classgan.models.id"), nullable=False),
    Column("name", Text, nullable=False),  # of the file
    Column("sha256", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    UniqueConstraint("model_id", "name"),
    comment="The files of a model's version: weights, samples, curves, card; never changed.",
)

data_versions = Table(
    "data_versions",
    metadata,
    identity(),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),  # of this name, from 1
    Column("source", Text, nullable=False),  # as in a plan, with the revision
    Column("fingerprint", Text, nullable=False),
    Column("images", BigInteger, nullable=False),
    Column("registered_by", Text, nullable=False),
    now("created_at"),
    UniqueConstraint("name", "version"),
    UniqueConstraint("name", "fingerprint"),  # the same images again are the same version
    comment="One row a state of a data set that a plan can name.",
)
