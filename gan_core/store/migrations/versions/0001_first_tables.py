"""first tables"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "students",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_students")),
        sa.UniqueConstraint("login", name=op.f("uq_students_login")),
        schema="classgan",
        comment="Who may contribute.",
    )
    op.create_table(
        "trainings",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("plan", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "queued",
                "launching",
                "running",
                "paused",
                "succeeded",
                "failed",
                "cancelled",
                name="training_state",
                schema="classgan",
            ),
            server_default="queued",
            nullable=False,
        ),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("iteration", sa.Integer(), server_default="0", nullable=False),
        sa.Column("images", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("position", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("data_fingerprint", sa.Text(), server_default="", nullable=False),
        sa.Column("data_images", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("payload_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trainings")),
        sa.UniqueConstraint("name", name=op.f("uq_trainings_name")),
        schema="classgan",
        comment="One row a training: a plan with a name.",
    )
    op.create_table(
        "checkpoints",
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("state", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_checkpoints_training_id"), ondelete="CASCADE"
        ),
        sa.UniqueConstraint("training_id", "iteration", name=op.f("uq_checkpoints_training_id_iteration")),
        schema="classgan",
        comment="Everything an unbroken run knows; the accepted contributions since then lead to the present.",
    )
    op.create_table(
        "iterations",
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("quorum", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("images", sa.BigInteger(), nullable=True),
        sa.Column("contributions", sa.Integer(), nullable=True),
        sa.Column("workers", sa.Integer(), nullable=True),
        sa.Column("g_loss", sa.Double(), nullable=True),
        sa.Column("d_loss", sa.Double(), nullable=True),
        sa.Column("d_real_accuracy", sa.Double(), nullable=True),
        sa.Column("d_fake_accuracy", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_iterations_training_id"), ondelete="CASCADE"
        ),
        sa.UniqueConstraint("training_id", "number", name=op.f("uq_iterations_training_id_number")),
        schema="classgan",
        comment="One row an update of the shared weights; closed when the next weights are published.",
    )
    op.create_table(
        "samples",
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("png", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_samples_training_id"), ondelete="CASCADE"
        ),
        sa.UniqueConstraint("training_id", "iteration", name=op.f("uq_samples_training_id_iteration")),
        schema="classgan",
        comment="Grids drawn from the same noise.",
    )
    op.create_table(
        "weights",
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_weights_training_id"), ondelete="CASCADE"
        ),
        sa.UniqueConstraint("training_id", "iteration", name=op.f("uq_weights_training_id_iteration")),
        schema="classgan",
        comment="What workers compute from; the last few iterations.",
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("student_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.UUID(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column(
            "hardware", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("images_per_second", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["student_id"], ["classgan.students.id"], name=op.f("fk_workers_student_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("student_id", "name", name=op.f("uq_workers_student_id_name")),
        schema="classgan",
        comment="One row a machine and device; its latest start.",
    )
    op.create_table(
        "leases",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("boot_id", sa.UUID(), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("images", sa.BigInteger(), nullable=False),
        sa.Column("first_ordinal", sa.Integer(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_leases_training_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["classgan.workers.id"], name=op.f("fk_leases_worker_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
        schema="classgan",
        comment="One row a claim: a worker's right to compute some units until a moment in time.",
    )
    op.create_index(
        "ix_leases_open",
        "leases",
        ["leased_until"],
        unique=False,
        schema="classgan",
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        op.f("ix_leases_training_id_iteration"), "leases", ["training_id", "iteration"], unique=False, schema="classgan"
    )
    op.create_index(
        "ix_leases_worker",
        "leases",
        ["worker_id"],
        unique=False,
        schema="classgan",
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "contributions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("lease_id", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "verdict",
            sa.Enum("accepted", "duplicate", "late", "foreign", "refused", name="verdict", schema="classgan"),
            nullable=False,
        ),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("first_ordinal", sa.Integer(), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("images", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("g_loss", sa.Double(), nullable=False),
        sa.Column("d_loss", sa.Double(), nullable=False),
        sa.Column("d_real_accuracy", sa.Double(), nullable=False),
        sa.Column("d_fake_accuracy", sa.Double(), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["lease_id"], ["classgan.leases.id"], name=op.f("fk_contributions_lease_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_contributions_training_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["classgan.workers.id"], name=op.f("fk_contributions_worker_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_contributions")),
        sa.UniqueConstraint("lease_id", name=op.f("uq_contributions_lease_id")),
        schema="classgan",
        comment="One row a submit: the ledger. Credit is derived from the accepted ones, never counted up.",
    )
    op.create_index(
        op.f("ix_contributions_training_id_iteration"),
        "contributions",
        ["training_id", "iteration"],
        unique=False,
        schema="classgan",
    )
    op.create_index(op.f("ix_contributions_worker_id"), "contributions", ["worker_id"], unique=False, schema="classgan")
    op.create_table(
        "gradients",
        sa.Column("contribution_id", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["contribution_id"],
            ["classgan.contributions.id"],
            name=op.f("fk_gradients_contribution_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("contribution_id", name=op.f("pk_gradients")),
        schema="classgan",
        comment="The tensors of a contribution; gone once a checkpoint holds their effect.",
    )
    op.create_table(
        "units",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("training_id", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("indices", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("images", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column(
            "state",
            sa.Enum("open", "leased", "done", "stale", name="unit_state", schema="classgan"),
            server_default="open",
            nullable=False,
        ),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_id", sa.BigInteger(), nullable=True),
        sa.Column("contribution_id", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(state = 'done') = (contribution_id IS NOT NULL)", name=op.f("ck_units_done")),
        sa.CheckConstraint("state <> 'leased' OR lease_id IS NOT NULL", name=op.f("ck_units_leased")),
        sa.ForeignKeyConstraint(
            ["contribution_id"], ["classgan.contributions.id"], name=op.f("fk_units_contribution_id")
        ),
        sa.ForeignKeyConstraint(["lease_id"], ["classgan.leases.id"], name=op.f("fk_units_lease_id")),
        sa.ForeignKeyConstraint(
            ["training_id"], ["classgan.trainings.id"], name=op.f("fk_units_training_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_units")),
        sa.UniqueConstraint("training_id", "iteration", "ordinal", name=op.f("uq_units_training_id_iteration_ordinal")),
        schema="classgan",
        comment="One row a slice of an epoch: the smallest thing that is handed out.",
    )
    op.create_index("ix_units_lease", "units", ["lease_id"], unique=False, schema="classgan")
    op.create_index(
        "ix_units_open",
        "units",
        ["training_id", "iteration", "ordinal"],
        unique=False,
        schema="classgan",
        postgresql_where=sa.text("state = 'open'"),
    )

    for table, column in (
        ("gradients", "payload"),
        ("weights", "payload"),
        ("checkpoints", "payload"),
        ("samples", "png"),
    ):
        op.execute(f"ALTER TABLE classgan.{table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.execute("DROP SCHEMA student CASCADE")
    op.execute("DROP SCHEMA classgan CASCADE")
