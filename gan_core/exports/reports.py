"""A training in Markdown: the model card that goes to the hub, and the report at its end."""

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from psycopg import Connection

from gan_core.plan import Plan, checked_plan
from gan_core.store.coordinator import evaluations, trainings
from gan_core.store.coordinator.evaluations import Evaluation
from gan_core.store.viewers import ledger
from gan_core.store.viewers.ledger import IterationRow
from gan_core.units import counted

TOLD = ("image_size", "channels", "model", "latent_dim", "generator_width", "discriminator_width", "loss")
TOLD_OF_TRAINING = (
    "contribution",
    "aggregation",
    "sampler",
    "batch_size",
    "learning_rate_g",
    "learning_rate_d",
    "seed",
)
TENSORS = ("generator.safetensors", "discriminator.safetensors")
# What `gan_core/networks/models.py` builds, for whoever has no classgan. A test runs it.
PYTORCH = """\
import json

import torch
from safetensors.torch import load_file
from torch import nn

with open("config.json") as file:
    plan = json.load(file)["plan"]
width = plan["generator_width"] * plan["image_size"] // 8
layers = [nn.ConvTranspose2d(plan["latent_dim"], width, 4, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
while width > plan["generator_width"]:
    layers += [nn.ConvTranspose2d(width, width // 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width // 2), nn.ReLU()]
    width //= 2
layers += [nn.ConvTranspose2d(width, plan["channels"], 4, 2, 1, bias=False), nn.Tanh()]
generator = nn.Sequential(*layers)

# Keys: generator/LAYER.weight and .bias, statistics/generator.LAYER.running_mean and .running_var.
tensors = load_file("generator.safetensors")
generator.load_state_dict({key.partition("/")[2].removeprefix("generator."): t for key, t in tensors.items()})
generator.eval()
with torch.no_grad():
    images = generator(torch.randn(64, plan["latent_dim"], 1, 1))  # (64, channels, size, size), from -1 to 1
"""
PICTURES = {
    "samples.png": "Images that it draws, not selected",
    "curves.png": "Losses and quality, against images seen and minutes of training",
    "timeline.gif": "The same noise, from the first iteration to the last",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """What there is to tell of a training."""

    name: str
    plan: Plan
    iteration: int
    images: int  # seen
    data_images: int
    seconds: float  # of training, without pauses
    history: tuple[IterationRow, ...]
    evaluations: tuple[Evaluation, ...]
    machines: int
    students: int
    contributors: tuple[str, ...]  # display names of those who want to be named


def training_record(connection: Connection, name: str) -> TrainingRecord:
    """What the database knows of this training. Raises TrainingError if there is none of this name."""
    row = trainings.get(connection, name)
    workers = [w for w in ledger.workers(connection, name) if w.images]
    return TrainingRecord(
        name=name,
        plan=checked_plan(row.plan),
        iteration=row.iteration,
        images=row.images,
        data_images=row.data_images,
        seconds=ledger.seconds_trained(connection, row.id),
        history=tuple(ledger.history(connection, row.id)),
        evaluations=tuple(evaluations.of_training(connection, row.id)),
        machines=len(workers),
        students=ledger.contributing_students(connection, row.id),
        contributors=tuple(ledger.named_contributors(connection, row.id)),
    )


def repository(told: TrainingRecord, folder: Path, source: str, iteration: int, images: int) -> dict[str, bytes]:
    """What a push puts into a repository, or a model's version holds: path → content.

    Args:
        source: what `classgan generate` finds it by: hub:OWNER/REPO or model:NAME.
        folder: where `push` and `sample` have written this training's files; pictures that aren't there are left out.
        iteration, images: of the generator in that folder.
    """
    files = {name: (folder / name).read_bytes() for name in TENSORS if (folder / name).is_file()}
    grids = sorted((folder / "samples").glob("iteration_*.png"))
    there = {"samples.png": grids[-1]} if grids else {}
    there |= {name: folder / name for name in ("curves.png", "timeline.gif") if (folder / name).is_file()}
    files |= {name: path.read_bytes() for name, path in there.items()}
    files["config.json"] = config(told, iteration, images).encode()
    files["README.md"] = card(told, source, iteration, images, frozenset(there)).encode()
    return files


def config(told: TrainingRecord, iteration: int, images: int) -> str:
    """config.json: what a program needs to rebuild the networks."""
    facts = {
        "format": "classgan-generator-1",
        "iteration": iteration,
        "images": images,
        "plan": told.plan.without_paths().model_dump(),
    }
    return json.dumps(facts, indent=2) + "\n"


def card(told: TrainingRecord, source: str, iteration: int, images: int, pictures: frozenset[str]) -> str:
    """README.md: the model card.

    Args:
        source: as in `repository`.
        iteration, images: of the generator that is pushed; the training may be further by now.
        pictures: which of PICTURES are pushed with it.
    """
    plan = told.plan
    head = [
        "---",
        *([f"license: {plan.hub_licence}"] if plan.hub_licence else []),
        "library_name: classgan",
        "pipeline_tag: unconditional-image-generation",
        "tags: [gan, classgan, image-generation, safetensors]",
        "---",
    ]
    shown = [f"![{caption}]({name})\n\n*{caption}.*\n" for name, caption in PICTURES.items() if name in pictures]
    evaluated = [e for e in told.evaluations if e.iteration <= iteration]
    parts = [
        f"# {told.name}",
        f"A generator of {plan.image_size}x{plan.image_size} {'grey' if plan.channels == 1 else 'colour'} images, trained by a class "
        f"on {counted(told.machines, 'machine')} of {counted(told.students, 'student')} with classgan: "
        f"after iteration {iteration:,}, with {counted(images, 'image')} seen.",
        *shown,
        "## Draw images",
        f"With classgan, on a machine of the class:\n\n```sh\nclassgan generate {source} --count 64 --out images.png\n```",
        f"Without it, in this repository's folder, with PyTorch and safetensors (`pip install torch safetensors`):\n\n```python\n{PYTORCH}```",
        "The files are safetensors: loading them runs no code. `generator.safetensors` is the moving average of the generator's weights (EMA), "
        "`discriminator.safetensors` the discriminator as it was, for those who want to train on; `config.json` has the plan.",
        "## Data",
        f"{_data(plan)}, {counted(told.data_images, 'image')}{', half of them shown mirrored' if plan.mirror else ''}. The images are not part of this repository; "
        "their own licence and the consent of those they show are matters of their source.",
        "## Training",
        f"{_table(plan, TOLD + TOLD_OF_TRAINING)}",
        f"Iterations {iteration:,}, images seen {images:,} ({images / max(1, told.data_images):.1f} passes over the data), {_duration(told.seconds)} of training.",
        "## Quality",
        _quality(evaluated),
        "## Who computed it",
        _thanks(told),
        "## Limits",
        "It draws what its data shows, with the data's gaps and biases, and may come close to single training images. It is the work of a class, made for "
        "learning: don't use its images as evidence, or to deceive people about who or what they show.",
        "## Licence",
        f"`{plan.hub_licence}`, chosen by the instructor."
        if plan.hub_licence
        else "None was chosen: all rights stay with those who made it.",
    ]
    return "\n".join(head) + "\n\n" + "\n\n".join(parts) + "\n"


def report(told: TrainingRecord, pictures: dict[str, str]) -> str:
    """The end of a training, for the instructor.

    Args:
        pictures: file name → what an `<img>` may show: a path, or the picture itself as a data URI.
    """
    shown = [
        f'**{PICTURES[name]}**\n\n<img alt="{name}" width="720" src="{source}">\n' for name, source in pictures.items()
    ]
    parts = [
        f"# {told.name}: report",
        f"{counted(told.iteration, 'iteration')}, {counted(told.images, 'image')} seen ({told.images / max(1, told.data_images):.1f} passes over {told.data_images:,}), "
        f"{_duration(told.seconds)} of training, {counted(told.machines, 'machine')} of {counted(told.students, 'student')}.",
        "## Quality",
        _quality(told.evaluations),
        *shown,
        "## Plan",
        _table(told.plan, TOLD + TOLD_OF_TRAINING),
    ]
    return "\n\n".join(parts) + "\n"


def _quality(evaluated: tuple[Evaluation, ...] | list[Evaluation]) -> str:
    if not evaluated:
        return "Not measured (`evaluate_interval` is 0, or no evaluation was due yet)."
    last, best = evaluated[-1], min(evaluated, key=lambda e: e.frechet)
    rows = [
        f"| figure | iteration {last.iteration:,} | iteration {best.iteration:,} (best) |",
        "|---|---|---|",
        f"| random-feature distance, lower is better | {last.frechet:.1f} | {best.frechet:.1f} |",
        *_kernel(last, best),
        f"| sliced Wasserstein distance, lower is better | {last.wasserstein:.1f} | {best.wasserstein:.1f} |",
        f"| diversity, 100% is as varied as the data | {last.diversity:.0%} | {best.diversity:.0%} |",
        f"| coverage, share of the data that has a sample nearby | {last.coverage:.0%} | {best.coverage:.0%} |",
    ]
    if last.fid is not None and best.fid is not None:
        rows.append(f"| FID, lower is better | {last.fid:.1f} | {best.fid:.1f} |")
    if last.inception_distance is not None and best.inception_distance is not None:
        name = "Inception distance of 1,024 samples, which version 0.1 called FID"
        rows.append(f"| {name} | {last.inception_distance:.1f} | {best.inception_distance:.1f} |")
    warning = evaluations.collapse(evaluated)
    protocol = (
        f"Protocol `{last.protocol}`: real images and samples from fixed seeds, compared in the features of a small convolutional net with random weights "
        "(Wasserstein: in patches of a Laplacian pyramid, times 1,000; coverage: nearer than the fifth-nearest real image). "
        "Figures compare evaluations of the same data by the same protocol; they are not published FID or KID, whose features are Inception's."
    )
    return "\n".join(rows) + f"\n\n{protocol}" + (f"\n\n**{warning}**" if warning else "")


def _kernel(*measured: Evaluation) -> list[str]:
    if any(e.kid is None for e in measured):
        return []  # version 0.1 didn't measure it
    cells = " | ".join(f"{e.kid:.4f} ± {e.kid_error:.4f}" for e in measured)
    return [f"| KID in the same features, with its standard error, lower is better | {cells} |"]


def _thanks(told: TrainingRecord) -> str:
    names = ", ".join(_plain(name) for name in told.contributors)
    return f"Named are those who asked for it: {names}." if names else "Nobody asked to be named."


def _plain(name: str) -> str:
    """A student's own words, with nothing that Markdown or HTML would obey."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]()#+-.!|~<>@&:" else c for c in name)


def _data(plan: Plan) -> str:
    """What the images are; not where they lie on the instructor's machine."""
    if plan.data == "digits":
        return "5,000 handwritten digits (MNIST, LeCun et al. 1998)"
    return f"`{plan.without_paths().data}`"


def _table(plan: Plan, names: tuple[str, ...]) -> str:
    return "\n".join(["| knob | value |", "|---|---|", *(f"| `{name}` | {getattr(plan, name)} |" for name in names)])


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
