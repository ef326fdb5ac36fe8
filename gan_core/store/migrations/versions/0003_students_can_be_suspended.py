"""students can be suspended"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("students", sa.Column("suspended", sa.Text(), server_default="", nullable=False), schema="classgan")


def downgrade() -> None:
    op.drop_column("students", "suspended", schema="classgan")
