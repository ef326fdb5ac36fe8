"""students have secrets, and know where they stood in the roster"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("students", sa.Column("secret_hash", sa.Text(), server_default="", nullable=False), schema="classgan")
    op.add_column(
        "students",
        sa.Column("roster", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        schema="classgan",
    )


def downgrade() -> None:
    op.drop_column("students", "roster", schema="classgan")
    op.drop_column("students", "secret_hash", schema="classgan")
