"""The placement policies by name: ours, and those that other packages bring."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType

from gan_core.errors import SettingsError
from gan_core.machines import Policy
from gan_core.scheduler.placement.balanced import balanced
from gan_core.scheduler.placement.fair import fair
from gan_core.scheduler.placement.simple import simple

GROUP = "classgan.placement"  # the entry points of other packages

PLACEMENTS: Mapping[str, Policy] = MappingProxyType({"simple": simple, "balanced": balanced, "fair": fair})


def policy(name: str) -> Policy:
    """The policy of this name; ours win over others' of the same name.

    Raises:
        SettingsError: there is none; names those that there are.
    """
    if name in PLACEMENTS:
        return PLACEMENTS[name]
    others = {point.name: point for point in entry_points(group=GROUP)}
    if name not in others:
        raise SettingsError(
            f"CLASSGAN_PLACEMENT: there is no placement policy {name!r}. Choose one of: {', '.join([*PLACEMENTS, *others])}."
        )
    return others[name].load()
