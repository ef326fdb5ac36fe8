"""the plans that a training had, and which one each lease was handed out with"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plans",
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("plan", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_plans_training_id"), ondelete="CASCADE"
        ),
        sa.UniqueConstraint("training_id", "version", name=op.f("uq_plans_training_id_version")),
        schema="classgan",
        comment="One row a version of a training's plan by which units were handed out.",
    )
    op.add_column(
        "leases", sa.Column("plan_version", sa.Integer(), server_default="0", nullable=False), schema="classgan"
    )
    # Of what was handed out before, only the present plan is known.
    op.execute(
        "INSERT INTO classgan.plans (training_id, version, plan) SELECT id, plan_version, plan FROM classgan.trainings"
    )
    op.execute(
        "UPDATE classgan.leases SET plan_version = t.plan_version FROM classgan.trainings AS t WHERE t.id = training_id"
    )


def downgrade() -> None:
    op.drop_column("leases", "plan_version", schema="classgan")
    op.drop_table("plans", schema="classgan")
