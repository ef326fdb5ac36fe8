"""data that is fetched in shards"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "trainings", sa.Column("data_source", sa.Text(), server_default="", nullable=False), schema="classgan"
    )
    op.add_column(
        "trainings",
        sa.Column("data_shards", postgresql.JSONB(), server_default=sa.text("'[]'::jsonb"), nullable=False),
        schema="classgan",
    )
    op.add_column("units", sa.Column("reach", sa.Integer(), server_default="0", nullable=False), schema="classgan")


def downgrade() -> None:
    op.drop_column("units", "reach", schema="classgan")
    op.drop_column("trainings", "data_shards", schema="classgan")
    op.drop_column("trainings", "data_source", schema="classgan")
