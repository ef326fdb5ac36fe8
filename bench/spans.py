"""When each step of an iteration began and ended, without a line of it in the product."""

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FrameType

# (what it is called here, module, function). None of them calls another one of these, so their times add up.
STEPS = (
    ("fetch", "gan_core.store.coordinator.unit_queue", "payload"),
    ("decode", "gan_core.policies.codecs", "decode"),
    ("aggregate", "gan_core.networks.update", "Aggregate.add"),
    ("aggregate", "gan_core.networks.update", "Aggregate.result"),
    ("step", "gan_core.networks.update", "advance"),
    ("check", "gan_core.networks.update", "is_finite"),
    ("encode", "gan_core.policies.codecs", "encode"),
    ("publish", "gan_core.store.coordinator.trainings", "publish"),
    ("checkpoint", "gan_core.coordinator.checkpoints", "Checkpoints.write_behind"),
    ("units", "gan_core.policies.sampling", "cut_units"),
    ("units", "gan_core.store.coordinator.unit_queue", "create_units"),
)
LABELS = tuple(dict.fromkeys(label for label, *_ in STEPS))

Span = tuple[str, float, float]  # label, start and end on the monotonic clock


@contextmanager
def traced() -> Generator[list[Span]]:
    """While this holds, every call of a step by this thread, or by one that starts now, is written into the list.

    The interpreter reports calls by their code, so it doesn't matter where a function was imported to. What is slow
    here happens inside a few calls of PyTorch and PostgreSQL, so the reports cost under a millisecond an iteration.
    """
    wanted, spans, began = _codes(), [], {}

    def note(frame: FrameType, event: str, _: object) -> None:
        label = wanted.get(frame.f_code)
        if label and event == "call":
            began[frame] = time.monotonic()
        elif label and event == "return" and frame in began:
            spans.append((label, began.pop(frame), time.monotonic()))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield spans
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _codes() -> dict[CodeType, str]:
    """The steps that exist. One that was renamed shows up as `other` time, not as a failure."""
    codes: dict[CodeType, str] = {}
    for label, module, path in STEPS:
        found: object = import_module(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        if code := getattr(found, "__code__", None):
            codes[code] = label
    return codes


def inside(spans: list[Span], start: float, end: float) -> dict[str, float]:
    """Seconds of each label between two moments, and what is left as `other`."""
    seconds = dict.fromkeys((*LABELS, "other"), 0.0)
    for label, began, ended in spans:
        seconds[label] += max(0.0, min(ended, end) - max(began, start))
    seconds["other"] = max(0.0, end - start - sum(seconds.values()))
    return seconds
