"""how good the samples were; who wants to be named"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "students", sa.Column("named", sa.Boolean(), server_default=sa.text("false"), nullable=False), schema="classgan"
    )
    op.create_table(
        "evaluations",
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("images", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("took", sa.Double(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("frechet", sa.Double(), nullable=False),
        sa.Column("wasserstein", sa.Double(), nullable=False),
        sa.Column("diversity", sa.Double(), nullable=False),
        sa.Column("coverage", sa.Double(), nullable=False),
        sa.Column("fid", sa.Double(), nullable=True),
        sa.Column("measured_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"],
            ["classgan.trainings.id"],
            name=op.f("fk_evaluations_training_id"),
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("training_id", "iteration", name=op.f("uq_evaluations_training_id_iteration")),
        schema="classgan",
        comment="How good the samples were after an iteration.",
    )


def downgrade() -> None:
    op.drop_table("evaluations", schema="classgan")
    op.drop_column("students", "named", schema="classgan")
