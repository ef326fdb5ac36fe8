"""some contributions are recomputed"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "students", sa.Column("valid_streak", sa.Integer(), server_default="0", nullable=False), schema="classgan"
    )
    op.add_column("workers", sa.Column("proven_speed", sa.Double(), nullable=True), schema="classgan")
    op.create_table(
        "checks",
        sa.Column("contribution_id", sa.BigInteger(), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("student_id", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("plan", postgresql.JSONB(), nullable=True),
        sa.Column("ordinals", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("images_per_second", sa.Double(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid", sa.Boolean(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("figures", postgresql.JSONB(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.CheckConstraint("(checked_at IS NULL) = (valid IS NULL)", name=op.f("ck_checks_checked")),
        sa.CheckConstraint("(checked_at IS NULL) = (payload IS NOT NULL)", name=op.f("ck_checks_payload")),
        sa.ForeignKeyConstraint(
            ["contribution_id"],
            ["classgan.contributions.id"],
            name=op.f("fk_checks_contribution_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_checks_training_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["student_id"], ["classgan.students.id"], name=op.f("fk_checks_student_id")),
        sa.ForeignKeyConstraint(["worker_id"], ["classgan.workers.id"], name=op.f("fk_checks_worker_id")),
        sa.PrimaryKeyConstraint("contribution_id", name=op.f("pk_checks")),
        schema="classgan",
        comment="One row a contribution that is recomputed: what that takes, then what came of it.",
    )
    op.create_index(
        "ix_checks_waiting",
        "checks",
        ["training_id", "contribution_id"],
        schema="classgan",
        postgresql_where=sa.text("checked_at IS NULL"),
    )
    op.create_index(
        "ix_checks_invalid",
        "checks",
        ["student_id", "checked_at"],
        schema="classgan",
        postgresql_where=sa.text("NOT valid"),
    )
    op.execute("ALTER TABLE classgan.checks ALTER COLUMN payload SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.drop_table("checks", schema="classgan")
    op.drop_column("workers", "proven_speed", schema="classgan")
    op.drop_column("students", "valid_streak", schema="classgan")
