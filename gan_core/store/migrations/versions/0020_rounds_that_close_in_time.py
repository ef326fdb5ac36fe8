"""rounds that close at a moment, with whatever was computed by then"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("iterations", sa.Column("closes_at", sa.DateTime(timezone=True), nullable=True), schema="classgan")


def downgrade() -> None:
    op.drop_column("iterations", "closes_at", schema="classgan")
