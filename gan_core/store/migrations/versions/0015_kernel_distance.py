"""the kernel distance beside the other scores; FID is said only of 10,000 samples"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What is there came from 1,024 samples.
    op.alter_column("evaluations", "fid", new_column_name="inception_distance", schema="classgan")
    _renamed_in_models("fid", "inception_distance")
    for name in ("kid", "kid_error", "fid"):
        op.add_column("evaluations", sa.Column(name, sa.Double(), nullable=True), schema="classgan")


def downgrade() -> None:
    for name in ("fid", "kid_error", "kid"):
        op.drop_column("evaluations", name, schema="classgan")
    _renamed_in_models("inception_distance", "fid")
    op.alter_column("evaluations", "inception_distance", new_column_name="fid", schema="classgan")


def _renamed_in_models(old: str, new: str) -> None:
    """Models keep their last scores as JSON."""
    op.execute(
        f"UPDATE classgan.models SET figures = (figures - '{old}') || jsonb_build_object('{new}', figures -> '{old}')"
        f" WHERE figures ? '{old}'"
    )
