"""Start a training by hand: at once if a place is free, through the queue if not."""

from gan_core.errors import TrainingError
from gan_core.plan import Plan
from gan_core.scheduler.demand import Demand
from gan_core.settings import settings


def enter_queue(name: str, plan: Plan, demand: Demand) -> str | None:
    """None if the training is to be led now; otherwise what it waits for, in words: the queue starts it by itself.

    A training that exists goes on at once: either the queue has called it, or a person wants it to.

    Raises:
        PlanError: the plan has no work for as many workers at once, or names a licence that the hub doesn't know.
        TrainingError: it exists and asks for something else.
    """
    from gan_core.scheduler.survey import Rules, survey
    from gan_core.store.coordinator import trainings
    from gan_core.store.engine import connect
    from gan_core.store.scheduler import submissions

    rules = Rules.of(settings())
    with connect(settings().database_url) as connection:
        if row := trainings.find(connection, name):
            if demand not in (Demand(), before := Demand(**submissions.demand_of(connection, row.id))):
                raise TrainingError(
                    f"{name!r} exists with another demand: {before}, not {demand}. Leave demand at its default to "
                    "continue it, or choose another name."
                )
            return None
        running = sum(e.wanted.started for e in survey(connection, rules).entries.values())
        plan.require_new()
        if demand == Demand() and running < rules.max_running:
            return None
        demand.require_possible(plan)
        submissions.submit(connection, name, plan.model_dump(mode="json"), demand.model_dump(), owner="")
        row = trainings.get(connection, name)
        return f"{name} is queued: {survey(connection, rules).reason(row.id)}"
