"""norm statistics no longer travel: what is stored is brought into the new form, and machines say which form they speak"""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("format", sa.Integer(), server_default="1", nullable=False), schema="classgan")
    op.add_column(
        "units", sa.Column("given_up", sa.Boolean(), server_default=sa.text("false"), nullable=False), schema="classgan"
    )
    connection = op.get_bind()
    # What was computed from weights of the old form can't be told from a fault any more: nobody is accused, and who still
    # computes starts anew.
    op.execute("DELETE FROM classgan.checks WHERE checked_at IS NULL")
    op.execute("UPDATE classgan.leases SET ended_at = now(), outcome = 'given back' WHERE ended_at IS NULL")
    op.execute("UPDATE classgan.units SET state = 'open' WHERE state = 'leased'")
    for table, key in (("weights", ("training_id", "iteration")), ("gradients", ("contribution_id",))):
        where = " AND ".join(f"{column} = :{column}" for column in key)
        rows = connection.execute(sa.text(f"SELECT {', '.join(key)} FROM classgan.{table}")).mappings().all()
        for row in rows:  # one at a time: each may be megabytes
            payload = connection.execute(
                sa.text(f"SELECT payload FROM classgan.{table} WHERE {where}"), row
            ).scalar_one()
            connection.execute(
                sa.text(f"UPDATE classgan.{table} SET payload = :payload WHERE {where}"),
                {**row, "payload": without_statistics(bytes(payload))},
            )


def downgrade() -> None:
    op.drop_column("units", "given_up", schema="classgan")
    op.drop_column("workers", "format", schema="classgan")


def without_statistics(payload: bytes) -> bytes:
    """A payload of form 1 in form 2: its last tensors, the norm statistics, are cut off."""
    start = 8 + int.from_bytes(payload[:8], "little")
    entries = json.loads(payload[8:start])
    kept = {name: entry for name, entry in entries.items() if not name.startswith("statistics/")}
    end = max((entry["data_offsets"][1] for name, entry in kept.items() if name != "__metadata__"), default=0)
    body = payload[start : start + end]
    kept["__metadata__"] |= {"version": "2", "checksum": hashlib.blake2b(body, digest_size=16).hexdigest()}
    header = json.dumps(kept, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + body
