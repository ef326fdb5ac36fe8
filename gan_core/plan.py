"""The plan: every knob of one training. It is the form in the Prefect UI and the `plan` column of a training."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gan_core.errors import PlanError
from gan_core.licences import require_known

ModelName = Literal["dcgan", "spectral"]
LossName = Literal["bce", "hinge"]
CodecName = Literal["float32", "float16", "int8", "int4"]
AggregationName = Literal["mean", "median", "trimmed_mean", "centered_clip", "multi_krum"]
SamplerName = Literal["shuffled", "sequential", "stratified", "progressive"]

# What a training is: it can't change once it has begun. Everything else may, from one iteration to the next.
FIXED = frozenset(
    {"data", "data_version", "image_size", "channels", "background", "mirror", "model", "latent_dim"}
    | {"generator_width", "discriminator_width", "loss", "contribution", "codec", "weights_codec"}
    | {"sampler", "shards", "seed"}
)


class Plan(BaseModel):
    """Every knob of one training, validated."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Training plan")

    data: Annotated[
        str,
        Field(
            pattern=r"^(digits|folder:.+|zip:.+|celeba(:[^#]+)?(#\w+)?|huggingface:[\w.-]+/.+|torchvision:\w+)$",
            description="Images to learn from: `digits` (5,000 handwritten digits, offline), `folder:PATH` or `zip:PATH` of pictures, "
            "`celeba` or `celeba:PATH` (faces), `huggingface:OWNER/NAME`, `torchvision:NAME`. See data.md.",
        ),
    ] = "digits"
    data_version: Annotated[
        str,
        Field(
            pattern=r"^$|^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?@[1-9][0-9]{0,8}$|^[0-9a-f]{16}$",
            description="Version that the images must have: NAME@VERSION from `classgan data register`, or a fingerprint. "
            "Other images are refused. Empty: the images that are there when the training begins.",
        ),
    ] = ""
    image_size: Annotated[Literal[32, 64, 128], Field(description="Height and width of the images, in pixels.")] = 32
    channels: Annotated[Literal[1, 3], Field(description="1 for grey images, 3 for colour.")] = 1
    background: Annotated[
        str,
        Field(
            pattern=r"^#[0-9a-f]{6}$",
            description="Colour under transparent pixels, as #rrggbb in small letters. Default: white.",
        ),
    ] = "#ffffff"
    mirror: Annotated[
        bool, Field(description="Show half of the images mirrored. Good for faces, wrong for digits.")
    ] = False

    model: Annotated[
        ModelName,
        Field(
            description="`dcgan`: batch norm in both networks. `spectral`: spectral norm in the discriminator, more stable.",
        ),
    ] = "dcgan"
    latent_dim: Annotated[int, Field(ge=2, le=1024, description="Numbers in a noise vector.")] = 64
    generator_width: Annotated[
        int, Field(ge=4, le=512, description="Channels of the generator's layer with the highest resolution.")
    ] = 24
    discriminator_width: Annotated[
        int, Field(ge=4, le=512, description="Channels of the discriminator's first layer.")
    ] = 24

    loss: Annotated[LossName, Field(description="`bce`: the original, non-saturating. `hinge`: more stable.")] = "hinge"
    learning_rate_g: Annotated[float, Field(gt=0, le=0.1, description="Adam's learning rate for the generator.")] = 2e-3
    learning_rate_d: Annotated[
        float, Field(gt=0, le=0.1, description="Adam's learning rate for the discriminator.")
    ] = 2e-3
    beta1: Annotated[float, Field(ge=0, lt=1, description="Adam's decay of the mean gradient, per step.")] = 0.5
    beta2: Annotated[float, Field(ge=0, lt=1, description="Adam's decay of the squared gradient, ≥ beta1².")] = 0.999
    batch_size: Annotated[
        int, Field(ge=2, le=4096, description="Images in one local step (or one micro-batch of a gradient).")
    ] = 32
    precision: Annotated[
        Literal["mixed", "float32"],
        Field(
            description="`mixed`: GPUs compute convolutions in bfloat16 (NVIDIA from Ampere on), which is several times as fast, with "
            "float32 weights, norms and losses; all else in float32. `float32`: everything everywhere."
        ),
    ] = "mixed"
    ema_half_life: Annotated[
        int,
        Field(
            ge=0,
            le=100_000_000,
            description="Half-life of the generator's moving average (EMA), in images of one machine's walk: batch_size for each update of the weights. 0: no average.",
        ),
    ] = 1_250

    contribution: Annotated[
        Literal["local_steps", "gradient"],
        Field(
            description="`local_steps`: each machine takes its own optimiser steps, and the changes are averaged (best for "
            "GANs). `gradient`: the gradients are averaged into one Adam step for each iteration (the classic).",
        ),
    ] = "local_steps"
    images_per_unit: Annotated[
        int, Field(ge=2, le=1_000_000, description="Images in one unit, the smallest piece of work.")
    ] = 625
    quorum: Annotated[
        Annotated[int, Field(ge=2, le=100_000_000)] | Literal["auto"],
        Field(
            description="An iteration closes with this many images. `auto`: after `target_seconds`, with what the online machines "
            "have computed by then, so that none is idle.",
        ),
    ] = 1_875
    min_quorum: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="Share of the quorum that is enough after the deadline.",
        ),
    ] = 0.5
    deadline_floor: Annotated[
        float,
        Field(
            ge=0.1,
            le=86_400,
            description="Earliest deadline, in seconds. Before it, only the full quorum closes an iteration.",
        ),
    ] = 10
    deadline_ceiling: Annotated[
        float, Field(ge=0.1, le=86_400, description="Latest deadline, in seconds. After it, `min_quorum` is enough.")
    ] = 600
    target_seconds: Annotated[
        Annotated[float, Field(gt=0, le=3_600)] | Literal["auto"],
        Field(
            description="Target length of a lease, in seconds: each machine gets as many units as it computes in about this time. `auto`: 10; "
            "with `quorum: auto` 25 times the root of what the usual machine loses to transfers and waits, 4 to 300: of 25 s it computes for 24.",
        ),
    ] = "auto"
    max_units_per_lease: Annotated[int, Field(ge=1, le=1_000, description="Most units in one lease.")] = 16
    lease_seconds: Annotated[
        float, Field(ge=1, le=86_400, description="Seconds without a heartbeat after which a machine loses its units.")
    ] = 30
    backup_leases: Annotated[
        bool,
        Field(
            description="Idle machines also compute units with which they will be done before a straggler; the first answer counts."
        ),
    ] = True
    credit_late: Annotated[
        bool,
        Field(description="A late answer earns credit if its lease had not run out. It never enters the model."),
    ] = True

    codec: Annotated[
        CodecName,
        Field(
            description="Number format of contributions: `float32` takes 4 bytes a number, `float16` 2, `int8` 1, `int4` half of one."
        ),
    ] = "float16"
    checks: Annotated[
        Literal["sampled", "off"],
        Field(
            description="`sampled`: some contributions are checked while the training goes on, always a student's first "
            "ten; an invalid one loses its credit. `off`: every accepted image earns credit unchecked."
        ),
    ] = "sampled"

    weights_codec: Annotated[
        Literal["float32", "float16", "int4"],
        Field(
            description="Number format of the weights that machines fetch. `int4`: whoever has the last ones fetches the change, half a "
            "byte a number; everybody else `float16`."
        ),
    ] = "float32"
    aggregation: Annotated[
        AggregationName,
        Field(
            description="How contributions are combined: `mean`, or a robust rule that limits the effect of a few bad ones.",
        ),
    ] = "mean"
    sampler: Annotated[
        SamplerName,
        Field(
            description="Order of an epoch: `shuffled`, `sequential`, `stratified` (every label evenly spread), or `progressive` "
            "(simple images first).",
        ),
    ] = "shuffled"
    shards: Annotated[
        Literal["auto", "off"],
        Field(
            description="`auto`: if data comes in several files (shards), each unit uses one of them, so that a machine "
            "computes as soon as it has the first. `off`: units use all of the data, and a machine needs all of "
            "it before it computes.",
        ),
    ] = "auto"
    seed: Annotated[
        int, Field(ge=0, le=2**31 - 1, description="Random seed: the same seed gives the same training.")
    ] = 0

    iterations: Annotated[int, Field(ge=0, le=10_000_000, description="Number of updates of the shared weights.")] = 50
    epochs: Annotated[
        float, Field(ge=0, le=100_000, description="Number of passes over the data. Above 0, it replaces `iterations`.")
    ] = 0
    sample_interval: Annotated[
        int, Field(ge=1, le=1_000_000, description="Iterations from one sample grid to the next.")
    ] = 2
    push_interval: Annotated[
        int, Field(ge=1, le=1_000_000, description="Iterations from one published generator to the next.")
    ] = 10
    evaluate_interval: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="Iterations from one evaluation of the samples (quality and diversity) to the next. The training "
            "goes on meanwhile. 0: never.",
        ),
    ] = 10
    model_name: Annotated[
        str,
        Field(
            pattern=r"^$|^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$",
            description="Name under which the finished model is kept, one version for each training; see `classgan models`. "
            "Empty: the training's name.",
        ),
    ] = ""
    hub_repo: Annotated[
        str,
        Field(
            pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$",
            description="Repository on the Hugging Face Hub, OWNER/REPO, to which the generator is pushed. Empty: none.",
        ),
    ] = ""
    hub_pushes_per_hour: Annotated[
        int, Field(ge=1, le=60, description="Most pushes to the hub in an hour. The last generator is always pushed.")
    ] = 4
    hub_licence: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9.+-]{0,40}$",
            description="Licence in the model card, in the hub's spelling, such as mit or cc-by-4.0. Empty: none was chosen.",
        ),
    ] = ""
    checkpoint_interval: Annotated[
        int, Field(ge=1, le=10_000, description="Iterations from one checkpoint to the next.")
    ] = 10
    cluster_shifts: Annotated[
        int,
        Field(
            ge=0,
            le=1_000,
            description="Pods that work for this training in the class's Kubernetes cluster, in addition to the students' "
            "machines.",
        ),
    ] = 0

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        faults = []
        if self.images_per_unit < self.batch_size:
            faults.append(
                f"images_per_unit is {self.images_per_unit}, less than one batch of {self.batch_size}: raise it or lower batch_size"
            )
        if self.quorum != "auto" and self.quorum < self.images_per_unit:
            faults.append(
                f"quorum is {self.quorum}, less than one unit of {self.images_per_unit} images: raise it or lower "
                "images_per_unit"
            )
        if self.deadline_ceiling < self.deadline_floor:
            faults.append(
                f"deadline_ceiling is {self.deadline_ceiling} s, below deadline_floor of {self.deadline_floor} s: "
                "raise it or lower deadline_floor"
            )
        if not self.iterations and not self.epochs:
            faults.append("iterations and epochs are both 0: nothing would be trained; set one of them")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def is_done(self, iteration: int, position: int, images: int) -> bool:
        """Whether the training ends here: `position` images of a data set of `images` were handed out so far."""
        return position >= self.epochs * images if self.epochs else iteration >= self.iterations

    def progress(self, iteration: int, position: int, images: int) -> float:
        """Share of the training that is done, 0 to 1."""
        return min(1.0, position / (self.epochs * images) if self.epochs else iteration / self.iterations)

    def batches_of(self, images: int) -> int:
        """Batches that a unit of so many images is cut into: as near to batch_size as can be, never below half of it."""
        return max(1, round(images / self.batch_size))

    def useful_workers(self) -> int | None:
        """Workers that an iteration has units for; None if it grows with them."""
        return None if self.quorum == "auto" else max(1, -(-self.quorum // self.images_per_unit))

    def images_left(self, iteration: int, position: int, images: int, data_images: int) -> int:
        """Images that the training still has to see.

        Args:
            position: images handed out so far.
            images: seen by the newest weights: tells how large iterations are when the plan leaves it open.
            data_images: in the data set; 0 while nobody has looked.
        """
        if self.epochs:
            return max(0, round(self.epochs * data_images) - position) if data_images else round(self.epochs * 10_000)
        size = self.quorum
        if size == "auto":
            size = images // iteration if iteration else self.least_quorum
        return max(0, self.iterations - iteration) * size

    @property
    def least_quorum(self) -> int:
        """Images of an iteration; with an automatic quorum, those of one whose only machine isn't known yet: a unit."""
        return self.images_per_unit if self.quorum == "auto" else self.quorum

    def changed(self, **values: Any) -> "Plan":
        """A copy with other values, validated. Raises PlanError with every fault, one line each."""
        (plan := checked_plan({**self.model_dump(), **values})).require_new(before=self)
        return plan

    def require_new(self, before: "Plan | None" = None) -> None:
        """Refuse what a stored plan may have and a new one may not, where it isn't as `before`.

        With beta1² above beta2, Adam's steps have no bound (Reddi et al. 2018, arXiv:1904.09237). Raises PlanError.
        """
        if before is None or self.hub_licence != before.hub_licence:
            require_known(self.hub_licence)
        betas = self.beta1, self.beta2
        if self.beta1**2 > self.beta2 and (before is None or betas != (before.beta1, before.beta2)):
            raise PlanError(
                f"beta2 is {self.beta2:g}, less than the square of beta1, {self.beta1:g}: Adam's steps would have no bound, and "
                f"their results could not be checked. Set beta2 to {self.beta1**2:.3g} or more (0.999 is usual), or lower beta1."
            )

    @property
    def fingerprint(self) -> str:
        """16 hex digits that differ for any other value of any knob."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=8).hexdigest()

    def without_paths(self) -> "Plan":
        """A copy that can be shown to the world: of a folder or zip only its name, not where it lies on this machine."""
        kind, _, place = self.data.partition(":")
        if kind not in ("folder", "zip"):
            return self
        name = place.replace("\\", "/").rstrip("/").rpartition("/")[2]
        return self.model_copy(update={"data": f"{kind}:{name or 'images'}"})

    def conflicts_with(self, other: "Plan") -> list[str]:
        """Fields in which `other` differs and that can't change once a training has begun."""
        # Where units end at a shard's end, an epoch's order follows from their size.
        by_shard = self.shards == "auto" and self.data.startswith("huggingface:")
        fixed = FIXED | {"images_per_unit"} if by_shard else FIXED
        return [name for name in Plan.model_fields if name in fixed and getattr(self, name) != getattr(other, name)]

    def differences(self, other: "Plan") -> str:
        """What `other` has differently, as words: "quorum 480 → 960, batch_size 32 → 64"; "" if nothing."""
        return ", ".join(
            f"{name} {getattr(self, name)} → {getattr(other, name)}"
            for name in Plan.model_fields
            if getattr(self, name) != getattr(other, name)
        )


def checked_plan(values: Mapping[str, Any]) -> Plan:
    """The plan with these values. Raises PlanError naming each bad field, its value and what is possible."""
    try:
        return Plan.model_validate(dict(values))
    except ValidationError as exc:
        raise PlanError("This plan can't be trained:\n  " + "\n  ".join(faults_of(exc, "plan"))) from exc


def faults_of(exc: ValidationError, whole: str) -> list[str]:
    """Each fault as a sentence: field, what is possible, and what was given. `whole` names what has no field of its own."""
    faults = []
    for error in exc.errors():
        # Of a knob that takes a number or a word, pydantic also says which of the two it tried.
        parts = [str(part) for part in error["loc"] if not str(part).startswith(("constrained-", "literal["))]
        field = ".".join(parts) or whole
        if error["type"] == "extra_forbidden":
            faults.append(
                f"{field}: a {whole} has no such knob" + ("; `classgan plan` lists them" if whole == "plan" else "")
            )
            continue
        got = "" if field == whole else f" (got {error['input']!r})"
        faults.append(f"{field}: {error['msg'].removeprefix('Value error, ')}{got}")
    return faults
