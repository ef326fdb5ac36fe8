"""What machines are told of the next weights: all of them, or how they differ from the last ones.

With `weights_codec` int4 the machines' weights follow the coordinator's by steps of 4 bits a number. A step leads from what the
machines have to where the coordinator is, so what one rounds off is part of the next: error feedback, which keeps quantised
training on its course (Seide et al. 2014; Karimireddy et al. 2019, arXiv:1901.09847).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gan_core.layout import PARTS, Layout, Vectors
from gan_core.plan import CodecName, Plan
from gan_core.policies.codecs import decode, encode
from gan_core.policies.sampling import seed_of

# `weights_codec` → the codec of weights as a whole, as they are kept, checked from, and fetched by newcomers.
WHOLE: Mapping[str, CodecName] = MappingProxyType({"float32": "float32", "float16": "float16", "int4": "float16"})
CHANGE: CodecName = "int4"


@dataclass(frozen=True, slots=True)
class Announcement:
    """An iteration's weights, as everybody has them."""

    weights: Vectors
    payload: bytes  # these weights, whole
    change: bytes = b""  # of the announcement before; empty where there is none, or the plan wants none

    def again(self) -> "Announcement":
        """The same weights for the next iteration."""
        return replace(self, change=b"")


def announce(plan: Plan, layout: Layout, iteration: int, weights: Vectors, before: Announcement | None) -> Announcement:
    """What machines get to see of the coordinator's weights.

    Args:
        iteration: of these weights. With the plan's seed it decides how the change is rounded, so a training that is
            computed again announces the same.
        before: None at the start: all machines fetch all of them.

    Raises:
        PayloadError: the weights hold a number that isn't finite.
    """
    if plan.weights_codec != "int4" or before is None:
        return _whole(plan, layout, encode(weights, layout, WHOLE[plan.weights_codec]))
    way = Vectors(*(weights.part(part) - before.weights.part(part) for part in PARTS))
    change = encode(way, layout, CHANGE, seed_of(plan.seed, "announcement", iteration))
    return replace(_whole(plan, layout, changed(plan, layout, before.weights, change)), change=change)


def announced(plan: Plan, layout: Layout, payload: bytes | memoryview) -> Vectors:
    """The weights of an announcement's payload.

    Raises:
        PayloadError: it isn't one of this plan's.
    """
    return decode(payload, layout, WHOLE[plan.weights_codec])


def changed(plan: Plan, layout: Layout, before: Vectors, change: bytes) -> bytes:
    """The payload of the announcement that differs by this change from the weights before: the very bytes, on any machine.

    Raises:
        PayloadError: the change isn't one of this plan's.
    """
    step = decode(change, layout, CHANGE)
    after = Vectors(*(before.part(part) + step.part(part) for part in PARTS))
    return encode(after, layout, WHOLE[plan.weights_codec])


def _whole(plan: Plan, layout: Layout, payload: bytes) -> Announcement:
    return Announcement(announced(plan, layout, payload), payload)
