"""Fair comparisons on a machine that others use too."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import psutil
import torch


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Disturbance:
    """How much of the processors other programs took since this was made. Our children count as ours once they have ended."""

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), self._others()

    @staticmethod
    def _others() -> float:
        """Processor seconds of everybody else since the machine's start."""
        times, ours = psutil.cpu_times(), os.times()
        idle = times.idle + getattr(times, "iowait", 0.0)  # only Linux tells them apart
        return sum(times) - idle - (ours.user + ours.system + ours.children_user + ours.children_system)

    def sentence(self) -> str:
        share = (self._others() - self._used) / (time.monotonic() - self._began) / (os.cpu_count() or 1)
        return f"Meanwhile other programs took {max(0.0, share):.0%} of this machine's processors."


def interleaved(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each variant returned, round by round.

    The variants take turns (A B A B), so that a machine that gets busy or hot slows all of them, not the last one.
    """
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            taken[name].append(measure())
    return taken


def ratio(values: Sequence[float], baseline: Sequence[float]) -> float:
    """The median of value / baseline within each round: neighbours in time are compared, and one bad round is ignored."""
    return statistics.median(value / base for value, base in zip(values, baseline, strict=True))


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def warm_up() -> None:
    """Make a process's first optimiser: PyTorch imports its compiler for it, seconds that come once and say nothing."""
    torch.optim.Adam([torch.zeros(1)])
