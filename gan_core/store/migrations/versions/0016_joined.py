"""machines that have joined are seen before their first shift"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "joined",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_joined")),
        schema="classgan",
        comment="One row a Prefect worker of the students' pool: when Prefect last heard of it.",
    )


def downgrade() -> None:
    op.drop_table("joined", schema="classgan", if_exists=True)
