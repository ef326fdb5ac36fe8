"""What the service is told and what it answers, as JSON. The examples are in the OpenAPI document."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from gan_core.plan import Plan
from gan_core.scheduler.demand import Demand
from gan_core.scheduler.foreign_submissions import is_job, is_task
from gan_core.units import EventKind, TrainingState

Scalar = str | int | float | bool
Parameters = dict[str, Scalar]
NAME = r"^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$"  # of a training, as the flow `train` has it


class Given(BaseModel):
    """A request's body: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Submission(Given):
    """A training of our own shape."""

    name: str = Field(max_length=200, description="Any text; it becomes small letters, digits and dashes.")
    plan: Literal["demo", "dcgan", "better"] | dict[str, Any] = Field(
        default_factory=dict, description="A preset's name, or knobs of a plan: docs/plan.md."
    )
    demand: Demand = Demand()


class Task(Given):
    """A scheduler's task."""

    name: str = Field(max_length=200)
    required_gpus: int = 0
    min_gpu_memory: int = Field(0, description="Of each GPU, in MB.")
    params: Parameters = Field(default_factory=dict)


class Job(Given):
    """A training service's job."""

    algorithm: str = ""
    dataset_id: str = ""
    name: str = Field("", max_length=200)
    train_data_version_hash: str = ""
    parameters: Parameters = Field(default_factory=dict)
    output_model_name: str = Field("", max_length=200)


class WrappedJob(Given):
    """The same, inside `metadata`."""

    metadata: Job


def shape_of(values: Any) -> str:
    """Which of the four shapes this is, by its fields."""
    if isinstance(values, BaseModel):
        return type(values).__name__
    if not isinstance(values, Mapping):
        return "Submission"
    if "metadata" in values:
        return "WrappedJob"
    return "Task" if is_task(values) else "Job" if is_job(values) else "Submission"


AnyShape = Annotated[
    Annotated[Submission, Tag("Submission")]
    | Annotated[Task, Tag("Task")]
    | Annotated[Job, Tag("Job")]
    | Annotated[WrappedJob, Tag("WrappedJob")],
    Discriminator(shape_of),
]
SHAPES: dict[str, Any] = {
    "ours": {
        "summary": "A preset, for two workers at once",
        "value": {"name": "digits-2", "plan": "demo", "demand": {"min_workers": 2}},
    },
    "knobs": {"summary": "Some knobs of a plan", "value": {"name": "long", "plan": {"iterations": 500}}},
    "task": {
        "summary": "A scheduler's task",
        "value": {
            "name": "My GAN",
            "required_gpus": 1,
            "min_gpu_memory": 8192,
            "params": {"model": "dcgan", "dataset": "mnist", "batch_size": "64", "lr": "0.001"},
        },
    },
    "job": {
        "summary": "A training service's job",
        "value": {
            "metadata": {
                "algorithm": "dcgan",
                "dataset_id": "digits",
                "name": "test1",
                "train_data_version_hash": "hashDg==",
                "parameters": {"LR": "0.002", "EPOCHS": "10", "PARALLEL_INSTANCES": "3"},
                "output_model_name": "my-digits",
            }
        },
    },
}


class Priority(Given):
    """A new priority."""

    priority: Annotated[int, Field(ge=-1_000, le=1_000, description="The training with the highest number goes first.")]


class Move(Given):
    """A place in the queue."""

    after: str = Field("", pattern=NAME[:-1] + "|^$", description="Right behind this training. Empty: at the top.")


class Answered(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Iteration(Answered):
    """One closed iteration."""

    number: int
    images: int
    contributions: int
    workers: int
    g_loss: float | None  # None: it isn't a number
    d_loss: float | None
    d_real_accuracy: float | None
    d_fake_accuracy: float | None
    seconds: float
    closed_at: datetime


class Metrics(BaseModel):
    """How far it is, and how fast."""

    iteration: int
    iterations: int = Field(description="Iterations of the plan; 0 if the plan counts epochs.")
    images: int = Field(description="Images seen so far.")
    images_per_second: float = Field(description="Over the last minute.")
    workers: int = Field(description="Workers placed on this training now.")
    last: Iteration | None


class Metadata(BaseModel):
    """What it was submitted with, and what it learns from."""

    owner: str
    plan: Plan
    demand: Demand
    data_fingerprint: str
    data_images: int
    created_at: datetime
    started_at: datetime | None


class Status(BaseModel):
    """One training: where it stands, in a word, in a sentence, and in figures."""

    job_id: int
    name: str
    state: TrainingState
    message: str = Field(description="What it does or waits for, and the next step.")
    position_in_queue: int | None = Field(description="From 1; empty for what doesn't wait.")
    earliest_start: datetime | None
    latest_start: datetime | None
    metadata: Metadata
    metrics: Metrics


class Brief(Answered):
    """One training in a list."""

    id: int
    name: str
    owner: str
    state: TrainingState
    message: str
    priority: int
    iteration: int
    images: int
    created_at: datetime
    started_at: datetime | None


class Sentence(BaseModel):
    """What was done."""

    message: str
    state: TrainingState


class Happening(Answered):
    """One line of the history."""

    id: int
    at: datetime
    kind: EventKind
    iteration: int
    text: str


class Line(BaseModel):
    """One line of the coordinator's log."""

    at: datetime
    level: int
    text: str


class Artifact(BaseModel):
    """A file of a training."""

    kind: Literal["samples", "generator"]
    iteration: int | None
    media_type: str
    href: str


class Worker(BaseModel):
    """One machine. Students see display names."""

    name: str
    device: str
    images_per_second: float | None
    seconds_silent: float
    is_online: bool
    images: int = Field(description="Accepted images, over all trainings.")
    message: str


class Waiting(BaseModel):
    """One training that runs or waits."""

    name: str
    state: TrainingState
    owner: str
    priority: int
    position: int | None
    workers: int
    earliest: datetime | None
    latest: datetime | None
    reason: str
    never: bool = Field(description="No machine of this class can serve it.")


class Page(BaseModel):
    """A part of a list."""

    next: int | None = Field(description="What to give as `after` for the next page; empty at the end.")


class Trainings(Page):
    items: list[Brief]


class Happenings(Page):
    items: list[Happening]


class Iterations(Page):
    items: list[Iteration]


class Lines(Page):
    items: list[Line]


class Artifacts(Page):
    items: list[Artifact]


class Me(BaseModel):
    """Who asks, and what they may do."""

    login: str
    is_instructor: bool
    may_submit: bool
    version: str


class Fault(BaseModel):
    field: str
    detail: str = Field(description="The value, and what is possible.")


class Problem(BaseModel):
    """A refusal as problem details (RFC 9457)."""

    title: str
    status: int
    detail: str
    errors: list[Fault] = []
