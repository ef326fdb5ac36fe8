"""trainings have a place in a queue, and workers are placed on them"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    columns = (
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("gpus", sa.Integer(), server_default="0", nullable=False),
        sa.Column("memory_mb", sa.Integer(), server_default="0", nullable=False),
        sa.Column("min_workers", sa.Integer(), server_default="1", nullable=False),
        sa.Column("max_workers", sa.Integer(), nullable=True),
        sa.Column("place_in_queue", sa.Double(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("queued_at", MOMENT, server_default=sa.func.now(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=True),
        sa.Column("waiting_since", MOMENT, server_default=sa.func.now(), nullable=True),
        sa.Column("waited_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("in_turn", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("called_at", MOMENT, nullable=True),
        sa.Column("calls", sa.Integer(), server_default="0", nullable=False),
    )
    for column in columns:
        op.add_column("trainings", column, schema="classgan")
    op.execute("UPDATE classgan.trainings SET queued_at = created_at, waiting_since = NULL")
    op.create_unique_constraint(
        op.f("uq_trainings_owner_idempotency_key"), "trainings", ["owner", "idempotency_key"], schema="classgan"
    )
    op.create_table_comment(
        "trainings",
        "One row a training: a plan with a name, and its place in the queue.",
        existing_comment="One row a training: a plan with a name.",
        schema="classgan",
    )
    op.add_column("workers", sa.Column("drained", sa.Text(), server_default="", nullable=False), schema="classgan")
    op.create_table(
        "placements",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("decided_at", MOMENT, server_default=sa.func.now(), nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["worker_id"], ["classgan.workers.id"], name=op.f("fk_placements_worker_id")),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_placements_training_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_placements")),
        schema="classgan",
        comment="One row a decision of the queue: which training a worker works for, since when, and why.",
    )
    op.create_index(
        "ix_placements_current",
        "placements",
        ["worker_id"],
        unique=True,
        schema="classgan",
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(op.f("ix_placements_training_id"), "placements", ["training_id"], schema="classgan")


def downgrade() -> None:
    op.drop_table("placements", schema="classgan")
    op.drop_column("workers", "drained", schema="classgan")
    op.execute("DROP TRIGGER IF EXISTS check_transition ON classgan.trainings")
    for column in [
        "calls",
        "called_at",
        "in_turn",
        "waited_seconds",
        "waiting_since",
        "started_at",
        "queued_at",
        "idempotency_key",
        "place",
        "max_workers",
        "min_workers",
        "memory_mb",
        "gpus",
        "priority",
        "owner",
    ]:
        op.drop_column("trainings", column, schema="classgan")
