"""A generator as a file of its own: safetensors with its plan inside. What `push` writes and `generate` reads."""

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from gan_core.errors import DataError
from gan_core.models import Vectors, layout_of
from gan_core.pictures import write
from gan_core.plan import Plan, checked_plan

FORMAT = "classgan-generator-1"


@dataclass(frozen=True, slots=True)
class Generator:
    """A trained generator, ready to draw."""

    plan: Plan
    average: Vectors  # D's part is empty
    iteration: int
    images: int  # seen in training


def save(path: Path, generator: Generator) -> None:
    """Write it, whole or not at all."""
    tensors, layout = {}, layout_of(generator.plan)
    for part, specs in (("generator", layout.generator), ("statistics", layout.statistics)):
        for spec in specs:
            if not spec.name.startswith("statistics/discriminator."):
                tensors[spec.name] = generator.average.part(part)[spec.start : spec.stop].view(spec.shape).contiguous()
    metadata = {
        "format": FORMAT,
        "plan": generator.plan.model_dump_json(),
        "iteration": str(generator.iteration),
        "images": str(generator.images),
    }
    write(path, safetensors.torch.save(tensors, metadata))


def load(path: Path) -> Generator:
    """Read a generator back.

    Raises:
        DataError: no such file, or not a generator that this program wrote.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
        if metadata.get("format") != FORMAT:
            raise DataError(
                f"{path} is not a generator of classgan: its format is {metadata.get('format')!r}, expected {FORMAT!r}."
            )
        plan = checked_plan(json.loads(metadata["plan"]))
        layout = layout_of(plan)
        average = Vectors(
            torch.zeros(layout.length("generator")), torch.zeros(0), torch.zeros(layout.length("statistics"))
        )
        for part, specs in (("generator", layout.generator), ("statistics", layout.statistics)):
            for spec in specs:
                if not spec.name.startswith("statistics/discriminator."):
                    average.part(part)[spec.start : spec.stop] = tensors[spec.name].reshape(-1)
        return Generator(plan, average, int(metadata["iteration"]), int(metadata["images"]))
    except FileNotFoundError as exc:
        raise DataError(
            f"There is no file {path}. A training writes its generator to outputs/NAME/generator.safetensors."
        ) from exc
    except (safetensors.SafetensorError, OSError, KeyError, ValueError, RuntimeError) as exc:
        raise DataError(f"{path} can't be read as a generator: {exc}.") from exc
