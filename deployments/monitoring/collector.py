"""What Prometheus reads of a class: every metric's name, type and meaning.

Names follow Prometheus' conventions: base units (seconds, bytes), `_total` for what only grows, `_ratio` for 0 to 1.
Labels are bounded: at most TRAININGS names of trainings and WORKERS of workers, whoever else there is is only counted.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gan_core.errors import StoreError
from gan_core.store.viewers import metrics, watching
from gan_core.store.viewers.metrics import ClassMetrics

log = logging.getLogger("classgan.metrics")

KEEP = 5.0  # seconds that a look is good for, however many ask
MIB = 1 << 20

Row = tuple[Sequence[str], float | None]  # values of the labels; None: not known, and left out


class ClassCollector(Collector):
    """Asks when it is asked, at most once in KEEP seconds; a database that is away is a fact, and no error.

    Args:
        read: one look at the class; raises StoreError if there is nobody to ask.
        keep: seconds that its answer is good for.
    """

    def __init__(self, read: Callable[[], ClassMetrics], keep: float = KEEP) -> None:
        self._read, self._keep = read, keep
        self._lock, self._looked = Lock(), float("-inf")
        self._found: list[Metric] = []

    def collect(self) -> list[Metric]:
        with self._lock:  # whoever asks meanwhile waits for the same answer
            if time.monotonic() - self._looked > self._keep:
                self._found = self._look()
                self._looked = time.monotonic()
            return self._found

    def _look(self) -> list[Metric]:
        began = time.monotonic()
        try:
            found = self._read()
        except StoreError as exc:
            log.warning("No metrics now: %s", exc)
            return [is_up(False)]
        seconds = time.monotonic() - began
        return [
            is_up(True),
            _gauge("database_read_seconds", "Seconds that reading these metrics from the database took.", seconds),
            *families(found),
        ]


def is_up(up: bool) -> Metric:
    return _gauge("up", "Whether the class's database answers; if 0, all other metrics are missing.", float(up))


def registry_of(url: str) -> CollectorRegistry:
    """The metrics of the class with this database."""

    def look() -> ClassMetrics:
        with watching.viewer(url) as connection:
            return metrics.read(connection)

    registry = CollectorRegistry()
    registry.register(ClassCollector(look))
    return registry


def exposition(url: str) -> Callable[[], bytes]:
    """What prints them as text, in Prometheus' format. It may block for seconds."""
    registry = registry_of(url)
    return lambda: generate_latest(registry)


def families(v: ClassMetrics) -> list[Metric]:
    """Every metric but `classgan_up`."""
    queued = v.states[metrics.TrainingState.QUEUED]
    missing = sum(v.presences.values()) - len(v.workers)
    return [
        _gauge("trainings", "Trainings by state.", [((state,), n) for state, n in v.states.items()], "state"),
        *_of_trainings(v.trainings),
        _gauge("queue_trainings", "Trainings that wait in the queue.", queued),
        _gauge("queue_longest_wait_seconds", "Longest wait of a training in the queue.", v.longest_wait),
        _gauge("queue_gpu_memory_bytes", "Largest GPU memory that a queued training asks for.", v.wanted_gpu_memory_mb * MIB),
        _gauge("workers", "Workers by presence: heard of within a minute, within five, longer ago.", [((p,), n) for p, n in v.presences.items()], "presence"),
        _gauge("workers_unnamed", "Workers that have no metrics of their own, because there are too many.", missing),
        _gauge("workers_out_of_memory", "Workers online whose last message says that memory ran out.", v.starved),
        *_of_workers(v.workers),
        _counter("contributions", "Contributions by verdict.", [((k,), n) for k, n in v.contributions.items()], "verdict"),
        _counter("contributed_images", "Images of contributions by verdict.", [((k,), n) for k, n in v.images.items()], "verdict"),
        _gauge("contributions_refused_ratio", "Refused share of the contributions of the last ten minutes.", v.refused_ratio),
        _counter("checks", "Contributions that were recomputed, by result.", [(("valid",), v.checks[True]), (("invalid",), v.checks[False])], "result"),
        _gauge("checks_waiting", "Contributions that are still to be recomputed.", v.checks[None]),
    ]  # fmt: skip


def _of_trainings(found: Sequence[metrics.TrainingMetrics]) -> list[Metric]:
    losses = [
        ((t.name, which), x) for t in found for which, x in (("generator", t.g_loss), ("discriminator", t.d_loss))
    ]
    units = [((t.name, state), n) for t in found for state, n in (("open", t.open), ("leased", t.leased))]
    return [
        _gauge("training_state", "1 for the state that a training is in.", [((t.name, t.state), 1) for t in found], "training", "state"),
        _gauge("training_iteration", "Iteration of the newest weights.", [((t.name,), t.iteration) for t in found], "training"),
        _counter("training_images", "Images that the newest weights have seen.", [((t.name,), t.images) for t in found], "training"),
        _gauge("training_images_per_second", "Images a second, over the last minute.", [((t.name,), t.images_per_second) for t in found], "training"),
        _gauge("training_loss", "Loss of each network in the last iteration.", losses, "training", "network"),
        _gauge("training_iteration_age_seconds", "Seconds since the last iteration closed.", [((t.name,), t.iteration_age) for t in found], "training"),
        _gauge("training_quorum_images", "Images that the open iteration needs.", [((t.name,), t.quorum) for t in found], "training"),
        _gauge("training_gathered_images", "Images that the open iteration has.", [((t.name,), t.gathered) for t in found], "training"),
        _gauge("training_units", "Units of the open iteration that wait or are being computed.", units, "training", "state"),
    ]  # fmt: skip


def _of_workers(found: Sequence[metrics.WorkerMetrics]) -> list[Metric]:
    memory = [((w.name,), None if w.gpu_memory_mb is None else w.gpu_memory_mb * MIB) for w in found]
    return [
        _gauge("worker_images_per_second", "Measured from accepted work.", [((w.name,), w.images_per_second) for w in found], "worker"),
        _gauge("worker_silent_seconds", "Seconds since a worker was last heard of.", [((w.name,), w.seconds_silent) for w in found], "worker"),
        _gauge("worker_units", "Units that a worker has leased.", [((w.name,), w.units_in_hand) for w in found], "worker"),
        _gauge("worker_gpu_memory_bytes", "Memory of a worker's GPU, as the worker reports it.", memory, "worker"),
    ]  # fmt: skip


def _gauge(name: str, text: str, rows: Iterable[Row] | float, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"classgan_{name}", text, labels=labels), rows)


def _counter(name: str, text: str, rows: Iterable[Row] | float, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"classgan_{name}", text, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[Row] | float) -> Metric:
    for labels, value in [((), rows)] if isinstance(rows, int | float) else rows:
        if value is not None:
            family.add_metric([str(label) for label in labels], value)
    return family
