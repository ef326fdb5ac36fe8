"""What a shift did so far, and as a sentence."""

import time
from dataclasses import dataclass, field

from gan_core.units import counted


@dataclass(slots=True)
class Tally:
    """What a shift did so far."""

    leases: int = 0
    units: int = 0
    images: int = 0  # accepted
    lost: int = 0  # leases whose answer was not accepted
    seconds: float = 0.0  # computing
    started: float = field(default_factory=time.monotonic)

    def sentence(self) -> str:
        rate = self.images / self.seconds if self.seconds else 0.0
        return f"{counted(self.units, 'unit')}, {counted(self.images, 'image')} accepted, {rate:,.0f} images/s while computing"
