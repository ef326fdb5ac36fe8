"""A generator as a file of its own: safetensors with its plan inside. What `push` writes and `generate` reads."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gan_core.errors import DataError, PlanError
from gan_core.files import write_whole
from gan_core.layout import TensorSpec
from gan_core.networks.drawing import standing_statistics
from gan_core.networks.models import layout_of, statistics_of
from gan_core.plan import Plan, checked_plan

FORMAT = "classgan-generator-1"


@dataclass(frozen=True, slots=True)
class Generator:
    """A trained generator, ready to draw."""

    plan: Plan
    average: Tensor  # G's flat weights, averaged over the training
    statistics: Tensor  # of its norm layers, in the order of `statistics_of`
    iteration: int
    images: int  # seen in training


def finished(plan: Plan, average: Tensor, iteration: int, images: int) -> Generator:
    """A training's averaged generator with the norm statistics that it draws with."""
    return Generator(plan, average, standing_statistics(plan, average), iteration, images)


def save(path: Path, generator: Generator) -> None:
    """Write it, whole or not at all. Its plan names the data, but not where it lay on this machine."""
    layout = layout_of(generator.plan)
    tensors = _named(generator.average, layout.generator) | _named(generator.statistics, statistics_of(generator.plan))
    metadata = {
        "format": FORMAT,
        "plan": generator.plan.without_paths().model_dump_json(),
        "iteration": str(generator.iteration),
        "images": str(generator.images),
    }
    write_whole(path, safetensors.torch.save(tensors, metadata))


def save_discriminator(path: Path, plan: Plan, weights: Tensor, iteration: int) -> None:
    """Write D (numbers,) beside the generator, for whoever wants to train on; `generate` doesn't need it."""
    tensors = _named(weights, layout_of(plan).discriminator)
    metadata = {
        "format": "classgan-discriminator-2",  # 1 had norm statistics, which nobody who trains uses
        "plan": plan.without_paths().model_dump_json(),
        "iteration": str(iteration),
    }
    write_whole(path, safetensors.torch.save(tensors, metadata))


def load(path: Path) -> Generator:
    """Read a generator back. The file may be a stranger's: names, shapes and types are compared with what its plan
    says before anything is allocated, so nothing becomes larger than the file.

    Raises:
        DataError: no such file, or not a generator that this program wrote.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise DataError(
                    f"{path} is not a generator of classgan: its format is {metadata.get('format')!r}, expected {FORMAT!r}."
                )
            plan = checked_plan(json.loads(metadata["plan"]))
            weights, numbers = layout_of(plan).generator, statistics_of(plan)
            _require_same(file, (*weights, *numbers))
            average, statistics = (
                torch.cat([file.get_tensor(spec.name).reshape(-1) for spec in specs]) for specs in (weights, numbers)
            )
        if not bool(average.isfinite().all() and statistics.isfinite().all()):
            raise DataError(f"{path} holds numbers that are not finite: this generator can't draw anything.")
        return Generator(plan, average, statistics, int(metadata["iteration"]), int(metadata["images"]))
    except FileNotFoundError as exc:
        raise DataError(
            f"There is no file {path}. A training writes its generator to outputs/NAME/generator.safetensors."
        ) from exc
    except PlanError as exc:
        raise DataError(f"{path} can't be read as a generator; another version may have written it. {exc}") from exc
    except (safetensors.SafetensorError, OSError, KeyError, ValueError, RuntimeError, RecursionError) as exc:
        raise DataError(f"{path} can't be read as a generator: {exc}.") from exc


def _named(vector: Tensor, specs: Iterable[TensorSpec]) -> dict[str, Tensor]:
    return {spec.name: vector[spec.start : spec.stop].view(spec.shape).contiguous() for spec in specs}


def _require_same(file: safetensors.safe_open, expected: Sequence[TensorSpec]) -> None:
    if different := set(file.keys()) ^ {spec.name for spec in expected}:
        raise ValueError(f"tensors that are missing or not expected: {sorted(different)[:3]}")
    for spec in expected:
        piece = file.get_slice(spec.name)
        shape, kind = tuple(piece.get_shape()), piece.get_dtype()
        if (shape, kind) != (spec.shape, "F32"):
            raise ValueError(f"{spec.name} is {kind} {shape}, its plan says F32 {spec.shape}")
