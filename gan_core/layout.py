"""The layout of a model: names, shapes and order of all its numbers, and the flat vectors in which they travel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["generator", "discriminator"]
PARTS: tuple[Part, ...] = ("generator", "discriminator")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor's place in its part's flat vector."""

    name: str  # "generator/0.weight"
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of all that a model's weights or a contribution hold, part by part, in a fixed order."""

    generator: tuple[TensorSpec, ...]
    discriminator: tuple[TensorSpec, ...]

    def part(self, part: Part) -> tuple[TensorSpec, ...]:
        return getattr(self, part)

    def length(self, part: Part) -> int:
        """Numbers in this part."""
        specs = self.part(part)
        return specs[-1].stop if specs else 0


@dataclass(slots=True)
class Vectors:
    """Weights, or a contribution: two flat float32 vectors in the order of a Layout."""

    generator: "Tensor"
    discriminator: "Tensor"

    def part(self, part: Part) -> "Tensor":
        return getattr(self, part)

    def clone(self) -> "Vectors":
        return Vectors(*(self.part(part).clone() for part in PARTS))
