"""The layout of a model: names, shapes and order of all its numbers, and the flat vectors in which they travel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["generator", "discriminator", "statistics"]
PARTS: tuple[Part, ...] = ("generator", "discriminator", "statistics")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor's place in its part's flat vector."""

    name: str  # "generator/0.weight"
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of everything a model's weights or a contribution hold, part by part, in a fixed order."""

    generator: tuple[TensorSpec, ...]
    discriminator: tuple[TensorSpec, ...]
    statistics: tuple[TensorSpec, ...]  # norm layers' running means and the like: the generator's first

    def part(self, part: Part) -> tuple[TensorSpec, ...]:
        return getattr(self, part)

    def length(self, part: Part) -> int:
        """Numbers in this part."""
        specs = self.part(part)
        return specs[-1].stop if specs else 0

    @property
    def generator_statistics(self) -> int:
        """How many of the statistics' numbers are the generator's: they come first."""
        return max((s.stop for s in self.statistics if s.name.startswith("statistics/generator.")), default=0)


@dataclass(slots=True)
class Vectors:
    """Weights, or a contribution: three flat float32 vectors in the order of a Layout."""

    generator: "Tensor"
    discriminator: "Tensor"
    statistics: "Tensor"

    def part(self, part: Part) -> "Tensor":
        return getattr(self, part)

    def clone(self) -> "Vectors":
        return Vectors(*(self.part(part).clone() for part in PARTS))
