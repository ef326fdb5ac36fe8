"""The values that placement reads and returns, frozen: machines, trainings, bids, placements. Units: images, images a second, MB."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One student's worker, as the database knows it."""

    id: int
    name: str = ""
    owner: str = ""  # whose it is
    device: str = "cpu"
    gpus: int = 0  # that it computes on
    memory_mb: int = 0  # of the smallest of those; 0 without one
    speed: float = 0.0  # images per second, from accepted work; 0 where nothing was measured yet
    online: bool = True  # heard of just now, and not drained
    training: int | None = None  # which it works for
    settled: bool = False  # it has only just begun there: not moved merely to even things out
    failed: frozenset[int] = frozenset()  # trainings whose units it took and could not compute
    too_large: frozenset[int] = frozenset()  # trainings whose step takes more memory than it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One training that runs or wants to."""

    id: int
    name: str = ""
    owner: str = ""
    priority: int = 0  # the highest goes first
    gpus: int = 0  # that each worker must have
    memory_mb: int = 0  # that each of those GPUs must have
    step_mb: int = 0  # memory that one step takes; 0 before its first coordinator
    min_workers: int = 1  # or none at all
    max_workers: int | None = None
    images_left: int = 1
    queued_at: float = 0.0  # seconds; only differences count
    waited: float = 0.0  # seconds so far without its least number of workers
    place: float | None = None  # set by `queue move`: before those of its priority without one
    started: bool = False  # it has a coordinator, or one is being started
    in_turn: bool = False  # it got its workers when nobody before it waited: equals don't take them away

    def needs(self) -> str:
        """In words, for one worker: "2 GPUs with 8,192 MB of memory each", or "" without a condition."""
        gpus = max(self.gpus, 1 if self.memory_mb else 0)
        if not gpus:
            return ""
        count = "a GPU" if gpus == 1 else f"{gpus} GPUs"
        each = "" if gpus == 1 else " each"
        return f"{count} with {self.memory_mb:,} MB of memory{each}" if self.memory_mb else count


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a training would work with if nothing more was given out."""

    wanted: Wanted
    workers: int = 0
    speed: float = 0.0  # of those, together; a machine that isn't measured yet counts as fast as the others
    is_measured: bool = True  # False: no machine of the class is, so that speeds only compare numbers of machines
    owner_share: float = 0.0  # of the whole class's speed, now: of all of its owner's trainings
    owner_used: float = 0.0  # the same over the last hours


@dataclass(frozen=True, slots=True)
class Bid:
    """How much a training should have a free machine: the lowest score gets it, the first in the queue among equals."""

    score: float
    because: str  # in words; read after "TRAINING: "


Policy = Callable[[Machine, Standing], Bid]  # the score may only grow when somebody is given a machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which training a machine works for, and why."""

    machine: int
    training: int
    because: str


def fits(machine: Machine, wanted: Wanted) -> bool:
    """Whether the machine has what each worker of the training must have, and hasn't shown that it can't do it."""
    has_gpus = machine.gpus >= wanted.gpus and machine.memory_mb >= wanted.memory_mb
    return has_gpus and wanted.id not in machine.failed | machine.too_large


def waste(machine: Machine, wanted: Wanted) -> float:
    """Share of the machine that would lie idle, 0 (tightest fit) to 1: GPUs count 0.7, memory 0.3."""
    spare_gpus = (machine.gpus - wanted.gpus) / machine.gpus if machine.gpus else 0.0
    spare_memory = (machine.memory_mb - wanted.memory_mb) / machine.memory_mb if machine.memory_mb else 0.0
    return 0.7 * spare_gpus + 0.3 * spare_memory
