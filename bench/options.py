"""What a run was asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """From the command line."""

    quick: bool = False  # so small that it only shows that everything works
    seconds: float = 90.0  # of training, for each line of `quality`
