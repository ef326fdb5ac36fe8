"""weights also as what changed, for machines that have the ones before"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("weights", sa.Column("change", sa.LargeBinary(), nullable=True), schema="classgan")
    op.execute("ALTER TABLE classgan.weights ALTER COLUMN change SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Nothing is lost: weights are there as a whole, too."""
    op.drop_column("weights", "change", schema="classgan")
