"""what one step of a training takes, so that it is leased only to machines that have room for it"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "trainings", sa.Column("step_mb", sa.Integer(), server_default="0", nullable=False), schema="classgan"
    )


def downgrade() -> None:
    op.drop_column("trainings", "step_mb", schema="classgan")
