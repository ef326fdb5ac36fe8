"""The values that all layers share, frozen: units, leases, measures, states, verdicts, event kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

PAYLOAD_FORMAT = 2  # of contributions and weights as they travel; 1 had norm statistics, too


def counted(count: int, noun: str) -> str:
    """So many of them, as people say it: "1 unit", "2 units", "1,000 images"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class UnitState(StrEnum):
    """Where a unit is. The database holds the same four words."""

    OPEN = "open"
    """Waiting for a worker. → leased, stale"""
    LEASED = "leased"
    """A worker has it until `leased_until`. → done, open (lease ran out or was given back), stale"""
    DONE = "done"
    """Its contribution is stored. → open (the contribution proved unusable)"""
    STALE = "stale"
    """Its iteration closed without it."""


class TrainingState(StrEnum):
    """Where a training is."""

    QUEUED = "queued"
    """Known; waits for its turn, its workers and a coordinator."""
    LAUNCHING = "launching"
    """A coordinator is preparing data and weights."""
    RUNNING = "running"
    """Units are handed out."""
    PAUSED = "paused"
    """Nothing is handed out until it is resumed, which means: until `train` is started again."""
    SUCCEEDED = "succeeded"
    """Every iteration of the plan is done."""
    FAILED = "failed"
    """Ended by an error, with a sentence."""
    CANCELLED = "cancelled"
    """Ended by a person, for good."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens, unless a person starts it again."""
        return self in (TrainingState.SUCCEEDED, TrainingState.FAILED, TrainingState.CANCELLED)


_Q, _L, _R, _P, _S, _F, _C = TrainingState

# What may become of a training, the same in the database (19_states.sql), where anything else is refused.
TRANSITIONS: Mapping[TrainingState, frozenset[TrainingState]] = MappingProxyType(
    {
        _Q: frozenset({_L, _R, _P, _F, _C}),  # running at once: a person paused and resumed it while it was launching
        _L: frozenset({_Q, _R, _P, _F, _C}),
        _R: frozenset(
            {_Q, _L, _P, _S, _F, _C}
        ),  # queued: another one comes first; launching: a new coordinator took over
        _P: frozenset({_Q, _L, _S, _F, _C}),  # succeeded, failed: by the iteration that was under way
        _S: frozenset({_Q, _L}),  # the plan was given more iterations
        _F: frozenset({_Q, _L, _C}),
        _C: frozenset(),
    }
)


class Verdict(StrEnum):
    """What became of a submit."""

    ACCEPTED = "accepted"
    """Stored; it enters the next weights."""
    SECOND = "second"
    """Computed as a second opinion: compared with the first one, credited, never averaged. Its machine reads "accepted"."""
    DUPLICATE = "duplicate"
    """This very lease was submitted before: the first answer stands, nothing to do."""
    LATE = "late"
    """The lease had run out and a unit of it went to someone else, or the iteration is closed."""
    FOREIGN = "foreign"
    """There is no such lease of this login and this start of the worker."""
    REFUSED = "refused"
    """The payload is not what this training expects; the reason says why."""


class EventKind(StrEnum):
    """What a training's history tells beyond the ordinary."""

    SILENT = "silent"
    """A lease ran out, or a shift was killed: nothing was heard of its worker."""
    AGAIN = "again"
    """A worker took units over that another one had lost or given back."""
    BACKUP = "backup"
    """An idle worker computes overdue units a second time."""
    DEVICE = "device"
    """A worker goes on with another device, since the one it wanted doesn't work or is too small."""
    GIVEN_BACK = "given back"
    """A worker gave its units back by itself."""
    LATE = "late"
    """A contribution came too late to count."""
    REFUSED = "refused"
    """A contribution was not what the training expects."""
    CLOSED_EARLY = "closed early"
    """An iteration closed without its whole quorum."""
    ROLLED_BACK = "rolled back"
    """An update led to numbers that are not finite; the last good weights stay."""
    FAST = "fast"
    """Work came back faster than the machine was ever shown to do it honestly; it is checked."""
    INVALID = "invalid"
    """A contribution was recomputed and is not what its lease asked for; its credit is lost."""
    SUSPENDED = "suspended"
    """A student was shut out."""
    TAKE_OVER = "take-over"
    """A standby took the lead over."""
    COLLAPSE = "collapse"
    """The samples have become much less varied."""
    HUB = "hub"
    """The Hugging Face Hub doesn't take the generator, for a reason that doesn't pass by itself."""
    PLAN = "plan"
    """The plan changed."""
    PAUSED = "paused"
    QUEUED = "queued"
    """Resumed."""
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Shard:
    """A stretch of a data set that is fetched and prepared by itself."""

    images: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkUnit:
    """A slice of the epochs' orders: the smallest thing that is handed out."""

    ordinal: int  # place within its iteration, from 0: the order in which contributions are added up
    epoch: int  # of its first image; it may go on with the next one
    indices: tuple[int, ...]  # images of the data set
    seed: int  # 63 bits: noise, mirroring and stochastic rounding all come from it
    position: int | None = None  # images handed out before it, over all epochs; None where nobody needs to know
    reach: int = 0  # so many images, from the first on, a machine must have; 0 where the data is no matter of shards

    @property
    def images(self) -> int:
        return len(self.indices)


def first_of(units: Sequence[WorkUnit], images: int) -> tuple[WorkUnit, ...]:
    """As much of these units as holds so many images: the last one may be cut."""
    kept: list[WorkUnit] = []
    for unit in units:
        if images > 0:
            kept.append(unit if images >= unit.images else replace(unit, indices=unit.indices[:images]))
        images -= unit.images
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One worker's right to compute one or several units of an iteration until a moment in time."""

    id: int  # grows with every claim: the attempt number, and the fence
    training_id: int
    iteration: int
    plan_version: int  # computed and judged by this one, whatever the plan is by then
    units: tuple[WorkUnit, ...]
    leased_until: datetime  # aware, judged by the database's clock
    seconds_left: float | None = None  # until its round closes, from the claim on; None: the round waits for it

    @property
    def images(self) -> int:
        return sum(unit.images for unit in self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a contribution says about itself, beside its tensors. Means over images."""

    images: int
    seconds: float  # of computing, on the worker
    g_loss: float
    d_loss: float
    d_real_accuracy: float  # share of real images D calls real, 0 to 1
    d_fake_accuracy: float  # share of generated images D calls generated, 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The database's answer to a submit."""

    verdict: Verdict
    reason: str  # "" when accepted


class Presence(StrEnum):
    """Whether a machine is there, by its last heartbeat."""

    ONLINE = "online"
    """Heard of within a minute."""
    IDLE = "idle"
    """Within five: asleep, stuck in its network, or just gone."""
    OFFLINE = "offline"

    @staticmethod
    def of(seconds_silent: float | None) -> "Presence":
        """None: never heard of."""
        if seconds_silent is None or seconds_silent >= 300:
            return Presence.OFFLINE
        return Presence.ONLINE if seconds_silent < 60 else Presence.IDLE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """One student's place on the leaderboard: credit of all trainings, and whether one of their machines is there."""

    display_name: str
    units: int
    images: int
    machines: int
    images_per_second: float  # of the machines that are online
    seconds_silent: float | None  # None: no machine yet
    is_me: bool = False

    @property
    def presence(self) -> Presence:
        return Presence.of(self.seconds_silent)
