"""A generator as a file of its own: safetensors with its plan inside. What `push` writes and `generate` reads."""

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from gan_core.errors import DataError, PlanError
from gan_core.files import write_whole
from gan_core.layout import Part, TensorSpec, Vectors
from gan_core.networks.models import layout_of
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
    """Write it, whole or not at all. Its plan names the data, but not where it lay on this machine."""
    tensors = {}
    for part, spec in _tensors(generator.plan):
        tensors[spec.name] = generator.average.part(part)[spec.start : spec.stop].view(spec.shape).contiguous()
    metadata = {
        "format": FORMAT,
        "plan": generator.plan.without_paths().model_dump_json(),
        "iteration": str(generator.iteration),
        "images": str(generator.images),
    }
    write_whole(path, safetensors.torch.save(tensors, metadata))


def save_discriminator(path: Path, plan: Plan, weights: Vectors, iteration: int) -> None:
    """Write D beside the generator, for whoever wants to train on; `generate` doesn't need it."""
    layout = layout_of(plan)
    specs: list[tuple[Part, TensorSpec]] = [("discriminator", s) for s in layout.discriminator]
    specs += [("statistics", s) for s in layout.statistics if s.name.startswith("statistics/discriminator.")]
    tensors = {
        spec.name: weights.part(part)[spec.start : spec.stop].view(spec.shape).contiguous() for part, spec in specs
    }
    metadata = {
        "format": "classgan-discriminator-1",
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
            expected = {spec.name: (part, spec) for part, spec in _tensors(plan)}
            _require_same(file, expected)
            layout = layout_of(plan)
            average = Vectors(
                torch.zeros(layout.length("generator")), torch.zeros(0), torch.zeros(layout.length("statistics"))
            )
            for name, (part, spec) in expected.items():
                average.part(part)[spec.start : spec.stop] = file.get_tensor(name).reshape(-1)
        if not all(bool(torch.isfinite(average.part(part)).all()) for part in ("generator", "statistics")):
            raise DataError(f"{path} holds numbers that are not finite: this generator can't draw anything.")
        return Generator(plan, average, int(metadata["iteration"]), int(metadata["images"]))
    except FileNotFoundError as exc:
        raise DataError(
            f"There is no file {path}. A training writes its generator to outputs/NAME/generator.safetensors."
        ) from exc
    except PlanError as exc:
        raise DataError(f"{path} can't be read as a generator; another version may have written it. {exc}") from exc
    except (safetensors.SafetensorError, OSError, KeyError, ValueError, RuntimeError, RecursionError) as exc:
        raise DataError(f"{path} can't be read as a generator: {exc}.") from exc


def _tensors(plan: Plan) -> list[tuple[Part, TensorSpec]]:
    """What a generator's file holds."""
    layout = layout_of(plan)
    named: list[tuple[Part, TensorSpec]] = [("generator", spec) for spec in layout.generator]
    return named + [("statistics", s) for s in layout.statistics if not s.name.startswith("statistics/discriminator.")]


def _require_same(file: safetensors.safe_open, expected: dict[str, tuple[Part, TensorSpec]]) -> None:
    found = set(file.keys())
    if found != expected.keys():
        raise ValueError(f"tensors that are missing or not expected: {sorted(found ^ expected.keys())[:3]}")
    for name, (_, spec) in expected.items():
        piece = file.get_slice(name)
        shape, kind = tuple(piece.get_shape()), piece.get_dtype()
        if (shape, kind) != (spec.shape, "F32"):
            raise ValueError(f"{name} is {kind} {shape}, its plan says F32 {spec.shape}")
