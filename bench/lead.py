"""A coordinator in a process of its own: `python -m bench.lead URL NAME CACHE`, the plan as the first line of stdin.

Each further line is a verb, answered by its start and end on the machine's monotonic clock and by the spans of the
steps inside: `open` creates units, `close` gathers and publishes, `turn` is both: close, then open the next.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from bench.children import say
from bench.measure import warm_up
from bench.spans import traced
from gan_core.coordinator.coordinator import Coordinator
from gan_core.plan import Plan


def open_iteration(training: Coordinator) -> None:
    training.create_units()


def close_iteration(training: Coordinator) -> None:
    training.publish(training.gather())


def turn(training: Coordinator) -> None:
    close_iteration(training)
    open_iteration(training)


VERBS: Mapping[str, Callable[[Coordinator], None]] = MappingProxyType(
    {"open": open_iteration, "close": close_iteration, "turn": turn}
)


def main(url: str, name: str, cache: str) -> None:
    plan = Plan.model_validate_json(sys.stdin.readline())
    warm_up()
    with Coordinator(url, name, plan, Path(cache)) as training:
        say("ready")
        for line in sys.stdin:
            started = time.monotonic()
            with traced() as spans:
                VERBS[line.strip()](training)
            say({"started": started, "ended": time.monotonic(), "spans": spans})


if __name__ == "__main__":
    main(*sys.argv[1:])
