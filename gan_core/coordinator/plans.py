"""Which plan a training goes on with, when `train` is started again, and what the class must know of it."""

from psycopg import Connection

from gan_core.errors import TrainingError
from gan_core.networks.memory import step_bytes
from gan_core.plan import Plan, checked_plan
from gan_core.store.coordinator import trainings


def ask_for(connection: Connection, name: str, plan: Plan, row: trainings.TrainingRow) -> None:
    """Let a training that exists go on with what is new in this plan, from its next iteration on.

    The plan that `train` was given before, given again, changes nothing: changes made meanwhile stay.

    Raises:
        TrainingError: the plan differs in what can't change.
    """
    now = checked_plan(row.wanted or row.plan)
    before = checked_plan(row.given or row.plan)
    if conflicts := before.conflicts_with(plan):
        changes = ", ".join(f"{f} was {getattr(before, f)!r}, now {getattr(plan, f)!r}" for f in conflicts)
        raise TrainingError(
            f"Training {name!r} exists with another plan: {changes}. Give the new one another name, or start this one with its old plan.",
        )
    given = plan.model_dump(mode="json")
    new = {f: value for f, value in given.items() if value != getattr(before, f)}
    if new and (wanted := now.changed(**new)) != now:
        trainings.want_plan(connection, row.id, wanted.model_dump(mode="json"), "a new start of `train`")
    trainings.set_given(connection, row.id, given)


def note_step(connection: Connection, training_id: int, plan: Plan) -> None:
    """Write down what one step of this plan takes, so that machines with less memory are leased nothing of it."""
    trainings.set_step(connection, training_id, step_bytes(plan) >> 20)
