"""what keeps it going: backup leases, the lead, plan changes, events, bounded tables"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BUSY = ("gradients", "weights", "checkpoints", "units", "leases", "coordinators")
TOASTED = ("gradients", "weights", "checkpoints")


def add(table: str, column: sa.Column) -> None:
    op.add_column(table, column, schema="classgan")


def upgrade() -> None:
    add("trainings", sa.Column("plan_version", sa.Integer(), server_default="0", nullable=False))
    add("trainings", sa.Column("given", postgresql.JSONB(), nullable=True))
    add("trainings", sa.Column("wanted", postgresql.JSONB(), nullable=True))
    add("trainings", sa.Column("wanted_by", sa.Text(), server_default="", nullable=False))
    add("trainings", sa.Column("term", sa.Integer(), server_default="0", nullable=False))
    add("iterations", sa.Column("target_seconds", sa.Double(), server_default="0", nullable=False))
    add("workers", sa.Column("run_id", sa.UUID(), nullable=True))

    add("leases", sa.Column("units_of", sa.BigInteger(), nullable=True))
    op.execute("UPDATE classgan.leases SET units_of = id")
    op.alter_column("leases", "units_of", nullable=False, schema="classgan")
    op.create_index(
        "ix_leases_units_of", "leases", ["units_of"], schema="classgan", postgresql_where=sa.text("ended_at IS NULL")
    )
    op.drop_index("ix_leases_worker", "leases", schema="classgan")  # held open leases only
    op.create_index("ix_leases_worker", "leases", ["worker_id"], schema="classgan")
    op.create_index(
        "ix_units_leased", "units", ["lease_id"], schema="classgan", postgresql_where=sa.text("state = 'leased'")
    )

    add("contributions", sa.Column("credited", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.execute("UPDATE classgan.contributions SET credited = true WHERE verdict = 'accepted'")
    op.drop_constraint("fk_contributions_lease_id", "contributions", schema="classgan", type_="foreignkey")
    op.create_table_comment(
        "contributions",
        "One row a submit: the ledger. Credit is derived from the credited ones, never counted up.",
        schema="classgan",
    )

    op.create_table(
        "coordinators",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("leads", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name="fk_coordinators_training_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_coordinators"),
        schema="classgan",
        comment="One row a living coordinator: the one that leads, and those that stand by.",
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name="fk_events_training_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        schema="classgan",
        comment="What happened beyond the ordinary, one sentence each; the latest ones.",
    )
    op.create_index("ix_events_training_id_id", "events", ["training_id", "id"], schema="classgan")

    # A few dozen dead rows are worth a vacuum: with the usual fifth of the table, blobs that were dropped long ago stay.
    for table in BUSY:
        toast = (
            ", toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 500"
            if table in TOASTED
            else ""
        )
        op.execute(
            f"ALTER TABLE classgan.{table} SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50{toast})"
        )


def downgrade() -> None:
    raise NotImplementedError("Leases and events of this version have no place in the older tables; restore a backup.")
