"""what every contribution was computed from, so that a training can be computed again"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("iterations", sa.Column("plan_version", sa.Integer(), nullable=True), schema="classgan")
    op.add_column("units", sa.Column("position", sa.BigInteger(), nullable=True), schema="classgan")
    op.add_column("contributions", sa.Column("slices", postgresql.JSONB(), nullable=True), schema="classgan")


def downgrade() -> None:
    for table, column in (("contributions", "slices"), ("units", "position"), ("iterations", "plan_version")):
        op.drop_column(table, column, schema="classgan")
