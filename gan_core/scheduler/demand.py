"""What a training asks of the class: its place among the others, and the machines it needs."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gan_core.errors import PlanError
from gan_core.plan import Plan, faults_of


class Demand(BaseModel):
    """What a training asks of the class. As it stands: any worker, and as many as there are."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Demand")

    priority: Annotated[
        int, Field(ge=-1_000, le=1_000, description="The training with the highest number goes first.")
    ] = 0
    gpus: Annotated[int, Field(ge=0, le=64, description="GPUs that each worker must have. 0: a CPU will do.")] = 0
    memory_mb: Annotated[
        int, Field(ge=0, le=1_000_000, description="Memory that each of those GPUs must have, in MB.")
    ] = 0
    min_workers: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="Least number of workers: the training gets all of them at the same time, or none.",
        ),
    ] = 1
    max_workers: Annotated[
        Annotated[int, Field(ge=1, le=10_000)] | None,
        Field(description="Most workers that the training may have. Empty: no limit."),
    ] = None

    @model_validator(mode="after")
    def _least_below_most(self) -> Self:
        if self.max_workers is not None and self.max_workers < self.min_workers:
            raise ValueError(f"max_workers is {self.max_workers}, below min_workers of {self.min_workers}: raise it")
        return self

    def require_possible(self, plan: Plan) -> None:
        """Raises PlanError if the plan has no work for as many workers as are asked for at once."""
        useful = plan.useful_workers()
        if useful is not None and self.min_workers > useful:
            raise PlanError(
                f"min_workers is {self.min_workers}, but an iteration of this plan has units for {useful} "
                f"(quorum {plan.quorum} / images_per_unit {plan.images_per_unit}). Lower it, or raise quorum."
            )


def checked_demand(values: Mapping[str, Any]) -> Demand:
    """The demand with these values. Raises PlanError naming each bad field, its value and what is possible."""
    try:
        return Demand.model_validate(dict(values))
    except ValidationError as exc:
        raise PlanError("This demand is impossible:\n  " + "\n  ".join(faults_of(exc, "demand"))) from exc
