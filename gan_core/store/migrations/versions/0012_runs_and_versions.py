"""what ran when and with what; versions of models and of data"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0010"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("plan", postgresql.JSONB(), nullable=False),
        sa.Column("plan_hash", sa.Text(), nullable=False),
        sa.Column("code_version", sa.Text(), nullable=False),
        sa.Column("packages", postgresql.JSONB(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("first_iteration", sa.Integer(), nullable=False),
        sa.Column("started_at", MOMENT, server_default=sa.func.now(), nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.Column("last_iteration", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_runs_training_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("training_id", "number", name=op.f("uq_runs_training_id_number")),
        schema="classgan",
        comment="One row a time that a coordinator led a training: with what, from when to when, and why it ended.",
    )
    op.create_index(
        "ix_runs_open",
        "runs",
        ["training_id"],
        unique=True,
        schema="classgan",
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("images", sa.BigInteger(), nullable=False),
        sa.Column("figures", postgresql.JSONB(), nullable=True),
        sa.Column("created_at", MOMENT, server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["classgan.runs.id"], name=op.f("fk_models_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_models_name_version")),
        schema="classgan",
        comment="One row a version of a model; never changed.",
    )
    op.create_index(op.f("ix_models_run_id"), "models", ["run_id"], schema="classgan")
    op.create_table(
        "artifacts",
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["classgan.models.id"], name=op.f("fk_artifacts_model_id")),
        sa.UniqueConstraint("model_id", "name", name=op.f("uq_artifacts_model_id_name")),
        schema="classgan",
        comment="The files of a model's version: weights, samples, curves, card; never changed.",
    )
    op.execute("ALTER TABLE classgan.artifacts ALTER COLUMN payload SET STORAGE EXTERNAL")
    op.create_table(
        "data_versions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("images", sa.BigInteger(), nullable=False),
        sa.Column("registered_by", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_data_versions")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_data_versions_name_version")),
        sa.UniqueConstraint("name", "fingerprint", name=op.f("uq_data_versions_name_fingerprint")),
        schema="classgan",
        comment="One row a state of a data set that a plan can name.",
    )


def downgrade() -> None:
    for table in ("data_versions", "artifacts", "models", "runs"):
        op.drop_table(table, schema="classgan")
