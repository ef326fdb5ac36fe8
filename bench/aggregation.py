"""Each aggregation rule's seconds and memory for 32 contributions of DCGAN 64x64's size.

`python -m bench.aggregation RULE CONTRIBUTIONS WIDTH` measures one rule: memory is only comparable in a fresh process.
"""

import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

import psutil
import torch

from bench.children import children, say
from bench.measure import interleaved, median, ratio
from bench.options import Options
from bench.report import Row, Section, at_most
from gan_core.layout import PARTS, Vectors
from gan_core.networks.models import layout_of
from gan_core.networks.update import Aggregate
from gan_core.plan import Plan
from gan_core.policies.aggregation import RULES
from gan_core.presets import preset

BASELINE = "mean"
LOOK = 0.005  # seconds between looks at the memory
BOUND = 16.0  # models' worth of memory that a rule may take: half of the 32 contributions themselves


class Peak:
    """The most memory that this process held while the block ran, above what it held before: bytes."""

    def __init__(self) -> None:
        self.bytes, self._before, self._done = 0, held(), threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Peak":
        self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._done.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._done.wait(LOOK):
            self.bytes = max(self.bytes, held() - self._before)


def held() -> int:
    """Memory that only this process can give back. Pages of files don't count where the system tells them apart."""
    try:
        status = Path(f"/proc/{os.getpid()}/status").read_text(encoding="utf-8")
        return int(status.partition("RssAnon:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return psutil.Process().memory_info().rss


def main(rule: str, contributions: str, width: str) -> None:
    plan = plan_for(rule, int(width))
    layout, random = layout_of(plan), torch.Generator().manual_seed(0)
    truth = Vectors(*(torch.randn(layout.length(part), generator=random) for part in PARTS))
    seconds, total = 0.0, Aggregate(plan)
    fresh = truth.clone()
    with Peak() as peak:
        for number in range(int(contributions)):
            for part in PARTS:  # in place: making contributions must not look like a rule's memory
                fresh.part(part).normal_(generator=random).add_(truth.part(part))
            started = time.perf_counter()
            total.add(fresh, 300 + number)
            seconds += time.perf_counter() - started
        started = time.perf_counter()
        total.result()
        seconds += time.perf_counter() - started
    say({"seconds": seconds, "bytes": peak.bytes})


def plan_for(rule: str, width: int) -> Plan:
    return preset("dcgan").changed(aggregation=rule, generator_width=width, discriminator_width=width)


def run(options: Options) -> Section:
    contributions, width, rounds = (4, 8, 1) if options.quick else (32, 64, 2)
    memory: dict[str, list[float]] = {rule: [] for rule in RULES}

    def measure(rule: str) -> float:
        with children(("aggregation", rule, contributions, width)) as (process,):
            answer = process.answer()
        memory[rule].append(max(1, answer["bytes"]))
        return answer["seconds"]

    taken = interleaved({rule: lambda r=rule: measure(r) for rule in RULES}, rounds)
    layout = layout_of(plan_for(BASELINE, width))
    model = 4 * sum(layout.length(part) for part in PARTS)
    rows = []
    for rule in RULES:
        seconds, used = median(taken[rule]), median(memory[rule])
        rows.append(
            Row(
                label=rule,
                cells=(f"{seconds:.2f}", f"{used / 1e6:,.0f}", f"{used / model:.1f}"),
                figures={"seconds": seconds, "bytes": used, "memory_ratio": ratio(memory[rule], memory[BASELINE])},
                ratio=ratio(taken[rule], taken[BASELINE]),
                judgement=None if options.quick else at_most(used / model, BOUND, "models"),
            )
        )
    return Section(
        name="aggregation",
        title=f"{contributions} contributions of {model / 1e6:.1f} MB each",
        columns=("seconds", "peak MB", "models' worth"),
        ratio="seconds",
        rows=tuple(rows),
        notes=(
            "Memory above what the process held before; pages of the temporary file, which the system may drop, don't count.",
        ),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
