"""Every table, once; those of what stays are in kept_tables.py. Alembic's migrations must build exactly this; a test compares them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

from gan_core.store import kept_tables  # noqa: F401  its tables belong to the metadata
from gan_core.store.columns import SCHEMA, enum, identity, metadata, now, of_training
from gan_core.units import TrainingState, UnitState, Verdict

__all__ = ["EXTERNAL", "SCHEMA", "metadata"]

UNIT_STATE = enum(UnitState, "unit_state")
TRAINING_STATE = enum(TrainingState, "training_state")
VERDICT = enum(Verdict, "verdict")

trainings = Table(
    "trainings",
    metadata,
    identity(),
    Column("name", Text, nullable=False, unique=True),
    Column("plan", JSONB, nullable=False),
    Column("state", TRAINING_STATE, nullable=False, server_default="queued"),
    Column("message", Text, nullable=False, server_default=""),  # a sentence for people
    Column("iteration", Integer, nullable=False, server_default="0"),  # of the newest weights
    Column("images", BigInteger, nullable=False, server_default="0"),  # seen by the newest weights
    Column("position", BigInteger, nullable=False, server_default="0"),  # handed out: where the sampler continues
    Column("data_fingerprint", Text, nullable=False, server_default=""),
    Column("data_images", BigInteger, nullable=False, server_default="0"),
    Column("data_source", Text, nullable=False, server_default=""),  # where images come from, with the revision
    Column("data_shards", JSONB, nullable=False, server_default=text("'[]'::jsonb")),  # images, fingerprint of each
    Column("payload_bytes", BigInteger, nullable=False, server_default="0"),  # of every contribution, exactly
    Column("plan_version", Integer, nullable=False, server_default="0"),  # grows with every change of the plan
    Column("given", JSONB),  # the plan as `train` was last given it: the same again changes nothing
    Column("wanted", JSONB),  # the plan from the next iteration on
    Column("wanted_by", Text, nullable=False, server_default=""),
    Column(
        "term", Integer, nullable=False, server_default="0"
    ),  # grows with every coordinator that takes the lead: the fence
    now("created_at"),
    now("updated_at"),
    # Its place among the others: what it asks for, what a person said, and how it fared
    Column("owner", Text, nullable=False, server_default=""),  # who submitted it
    Column("priority", Integer, nullable=False, server_default="0"),  # the highest goes first
    Column("gpus", Integer, nullable=False, server_default="0"),  # of each worker
    Column("memory_mb", Integer, nullable=False, server_default="0"),  # of each GPU
    Column(
        "step_mb", Integer, nullable=False, server_default="0"
    ),  # that one step takes; 0 before its first coordinator
    Column("min_workers", Integer, nullable=False, server_default="1"),  # or none at all
    Column("max_workers", Integer),
    Column("place_in_queue", Double),  # set by `queue move`; the lowest first, before those without
    Column("idempotency_key", Text),  # the same again, of the same owner, is the same training
    now("queued_at"),
    Column("started_at", DateTime(timezone=True)),  # its first coordinator began
    Column("waiting_since", DateTime(timezone=True), server_default=func.now()),  # for workers; NULL while it has them
    Column("waited_seconds", Double, nullable=False, server_default="0"),  # before that
    Column("in_turn", Boolean, nullable=False, server_default=text("false")),  # nobody before it waits for its workers
    Column("called_at", DateTime(timezone=True)),  # the queue asked Prefect for its coordinator
    Column("calls", Integer, nullable=False, server_default="0"),  # the number of that run: asked twice, it is one
    UniqueConstraint("owner", "idempotency_key"),
    comment="One row a training: a plan with a name, and its place in the queue.",
)

plans = Table(
    "plans",
    metadata,
    of_training(),
    Column("version", Integer, nullable=False),
    Column("plan", JSONB, nullable=False),
    UniqueConstraint("training_id", "version"),
    comment="One row a version of a training's plan by which units were handed out.",
)

iterations = Table(
    "iterations",
    metadata,
    of_training(),
    Column("number", Integer, nullable=False),
    Column("quorum", BigInteger, nullable=False),  # images needed
    Column("position", BigInteger, nullable=False),  # of the sampler after its units
    Column("target_seconds", Double, nullable=False, server_default="0"),  # leases are sized for; 0: as the plan says
    Column("plan_version", Integer),  # that it goes by; NULL: opened by a version that didn't note it
    now("opened_at"),
    Column("closes_at", DateTime(timezone=True)),  # with what was computed by then; NULL: once its images are there
    Column("closed_at", DateTime(timezone=True)),
    Column("images", BigInteger),
    Column("contributions", Integer),
    Column("workers", Integer),
    Column("g_loss", Double),
    Column("d_loss", Double),
    Column("d_real_accuracy", Double),
    Column("d_fake_accuracy", Double),
    UniqueConstraint("training_id", "number"),
    comment="One row an update of the shared weights; closed when the next weights are published.",
)

students = Table(
    "students",
    metadata,
    identity(),
    Column("login", Text, nullable=False, unique=True),  # at the class server; on one machine a PostgreSQL role
    Column("display_name", Text, nullable=False),
    Column("suspended", Text, nullable=False, server_default=""),  # why; "" for everybody who may contribute
    Column(
        "secret_hash", Text, nullable=False, server_default=""
    ),  # SHA-256; "" for who has no login at the class server
    Column(
        "roster", JSONB, nullable=False, server_default=text("'{}'::jsonb")
    ),  # the columns of the roster it came from
    Column("valid_streak", Integer, nullable=False, server_default="0"),  # valid checks in a row, of all machines
    Column("named", Boolean, nullable=False, server_default=text("false")),  # wants to be named where models are shown
    now("created_at"),
    comment="Who may contribute.",
)

workers = Table(
    "workers",
    metadata,
    identity(),
    Column("student_id", BigInteger, ForeignKey("classgan.students.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("boot_id", UUID, nullable=False),  # of its latest start
    Column("device", Text, nullable=False),
    Column("hardware", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("images_per_second", Double),  # measured from accepted work
    Column("proven_speed", Double),  # images per second: the fastest result that a check found valid
    Column("run_id", UUID),  # the Prefect run of its latest start
    Column("format", Integer, nullable=False, server_default="1"),  # of its payloads: tells an old version's
    Column("message", Text, nullable=False, server_default=""),
    Column("drained", Text, nullable=False, server_default=""),  # by whom; "" for who may be given work
    now("registered_at"),
    now("last_seen"),
    UniqueConstraint("student_id", "name"),
    comment="One row a machine and device; its latest start.",
)

joined = Table(
    "joined",
    metadata,
    Column("name", Text, primary_key=True),
    now("last_seen"),
    comment="One row a Prefect worker of the students' pool: when Prefect last heard of it.",
)

placements = Table(
    "placements",
    metadata,
    identity(),
    Column("worker_id", BigInteger, ForeignKey("classgan.workers.id"), nullable=False),
    of_training(),
    Column("reason", Text, nullable=False),  # a sentence for people
    now("decided_at"),
    Column("ended_at", DateTime(timezone=True)),
    Index("ix_placements_current", "worker_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index(None, "training_id"),
    comment="One row a decision of the queue: which training a worker works for, since when, and why.",
)

leases = Table(
    "leases",
    metadata,
    identity(),
    of_training(),  # the id grows with every claim: the fence
    Column("iteration", Integer, nullable=False),
    Column("worker_id", BigInteger, ForeignKey("classgan.workers.id"), nullable=False),
    Column("boot_id", UUID, nullable=False),
    Column("units", Integer, nullable=False),
    Column("images", BigInteger, nullable=False),
    Column("first_ordinal", Integer, nullable=False),
    Column("plan_version", Integer, nullable=False, server_default="0"),  # what it is computed and judged by
    Column("units_of", BigInteger, nullable=False),  # the lease whose units these are: itself, or the one it backs up
    Column("second_of", BigInteger),  # the lease whose units it computes a second time, so that both can be compared
    Column("ordinals", ARRAY(Integer)),  # of those units
    now("claimed_at"),
    Column("leased_until", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),
    Column("outcome", Text, nullable=False, server_default=""),  # why it ended, in words
    Index("ix_leases_open", "leased_until", postgresql_where=text("ended_at IS NULL")),
    Index("ix_leases_worker", "worker_id"),
    Index("ix_leases_units_of", "units_of", postgresql_where=text("ended_at IS NULL")),
    Index(None, "training_id", "iteration"),
    comment="One row a claim: a worker's right to compute some units until a moment in time.",
)

contributions = Table(
    "contributions",
    metadata,
    identity(),
    of_training(),
    Column("iteration", Integer, nullable=False),
    Column("lease_id", BigInteger, nullable=False),  # which is gone after a while; this row stays
    Column("worker_id", BigInteger, ForeignKey("classgan.workers.id"), nullable=False),
    Column("verdict", VERDICT, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column(
        "credited", Boolean, nullable=False, server_default=text("false")
    ),  # accepted, or late through no fault of the worker
    Column("first_ordinal", Integer, nullable=False),  # of its units: its place in the sum
    Column("units", Integer, nullable=False),
    Column("images", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("g_loss", Double, nullable=False),
    Column("d_loss", Double, nullable=False),
    Column("d_real_accuracy", Double, nullable=False),
    Column("d_fake_accuracy", Double, nullable=False),
    Column("slices", JSONB),  # [position, images, seed] of each of its units, of those that entered the weights
    now("submitted_at"),
    UniqueConstraint("lease_id"),  # a second upload is impossible, not unlikely
    Index(None, "training_id", "iteration"),
    Index(None, "worker_id"),
    comment="One row a submit: the ledger. Credit is derived from the credited ones, never counted up.",
)

units = Table(
    "units",
    metadata,
    identity(),
    of_training(),
    Column("iteration", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("position", BigInteger),  # images handed out before it, over all epochs
    Column("indices", ARRAY(Integer), nullable=False),
    Column("images", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column(
        "reach", Integer, nullable=False, server_default="0"
    ),  # images, from the first on, that it takes; 0: all are there
    Column("state", UNIT_STATE, nullable=False, server_default="open"),
    Column("given_up", Boolean, nullable=False, server_default=text("false")),  # it spoiled whoever computed it
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("lease_id", BigInteger, ForeignKey("classgan.leases.id")),  # the latest one
    Column("contribution_id", BigInteger, ForeignKey("classgan.contributions.id")),
    UniqueConstraint("training_id", "iteration", "ordinal"),
    CheckConstraint("(state = 'done') = (contribution_id IS NOT NULL)", name="done"),
    CheckConstraint("state <> 'leased' OR lease_id IS NOT NULL", name="leased"),
    # What a claim looks for, and nothing else: stays small however many units were ever made.
    Index("ix_units_open", "training_id", "iteration", "ordinal", postgresql_where=text("state = 'open'")),
    Index("ix_units_lease", "lease_id"),
    Index("ix_units_leased", "lease_id", postgresql_where=text("state = 'leased'")),
    comment="One row a slice of an epoch: the smallest thing that is handed out.",
)

gradients = Table(
    "gradients",
    metadata,
    Column(
        "contribution_id", BigInteger, ForeignKey("classgan.contributions.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("payload", LargeBinary, nullable=False),
    comment="The tensors of a contribution; gone once a checkpoint holds their effect.",
)

checks = Table(
    "checks",
    metadata,
    Column(
        "contribution_id", BigInteger, ForeignKey("classgan.contributions.id", ondelete="CASCADE"), primary_key=True
    ),
    of_training(),
    Column("iteration", Integer, nullable=False),
    Column("student_id", BigInteger, ForeignKey("classgan.students.id"), nullable=False),
    Column("worker_id", BigInteger, ForeignKey("classgan.workers.id"), nullable=False),
    Column("plan", JSONB),  # of the lease; NULL once it was checked, as the payload is
    Column("ordinals", ARRAY(Integer), nullable=False),  # of its units
    Column("images_per_second", Double, nullable=False),  # from claim to answer
    Column("payload", LargeBinary),
    Column("trail", LargeBinary),  # where two machines computed it: what they are compared by, until they were
    Column(
        "disputed", Boolean, nullable=False, server_default=text("false")
    ),  # and say different things: to be recomputed
    Column("checked_at", DateTime(timezone=True)),
    Column("valid", Boolean),
    Column("reason", Text, nullable=False, server_default=""),  # for the student; "" if valid
    Column("figures", JSONB),  # of each network: cosine, length, shares of the stretches
    Column("seconds", Double),  # that the check took
    CheckConstraint("(checked_at IS NULL) = (valid IS NULL)", name="checked"),
    CheckConstraint("(checked_at IS NULL) = (payload IS NOT NULL)", name="payload"),
    Index("ix_checks_waiting", "training_id", "contribution_id", postgresql_where=text("checked_at IS NULL")),
    Index("ix_checks_invalid", "student_id", "checked_at", postgresql_where=text("NOT valid")),
    comment="One row a contribution that is recomputed: what that takes, then what came of it.",
)

weights = Table(
    "weights",
    metadata,
    of_training(),
    Column("iteration", Integer, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("change", LargeBinary),  # of the iteration before, for workers that have that; none where all fetch all
    now("created_at"),
    UniqueConstraint("training_id", "iteration"),
    comment="What workers compute from; the last few iterations.",
)

checkpoints = Table(
    "checkpoints",
    metadata,
    of_training(),
    Column("iteration", Integer, nullable=False),
    Column("state", JSONB, nullable=False),  # counters
    Column("payload", LargeBinary, nullable=False),  # tensors
    now("created_at"),
    UniqueConstraint("training_id", "iteration"),
    comment="Everything an unbroken run knows; the accepted contributions since then lead to the present.",
)

coordinators = Table(
    "coordinators",
    metadata,
    Column("id", UUID, primary_key=True),  # of this start
    of_training(),
    Column("place", Text, nullable=False),  # host and process, for people
    Column("leads", Boolean, nullable=False),  # or stands by
    now("started_at"),
    now("last_seen"),
    comment="One row a living coordinator: the one that leads, and those that stand by.",
)

# Payloads don't compress; without trying, an insert of 25 MB takes 0.3 s instead of 0.5 s.
EXTERNAL = (
    ("gradients", "payload"),
    ("checks", "payload"),
    ("checks", "trail"),
    ("weights", "payload"),
    ("weights", "change"),
    ("checkpoints", "payload"),
    ("samples", "png"),
    ("artifacts", "payload"),
)
