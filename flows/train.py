"""Train one GAN on the machines of a whole class."""

import logging
from typing import TYPE_CHECKING, Annotated

from prefect import flow
from prefect.futures import PrefectConcurrentFuture, PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from gan_core.errors import Finished, LeadLost
from gan_core.plan import Plan
from gan_core.presets import PRESETS
from gan_core.scheduler.demand import Demand
from gan_core.settings import settings
from tasks.aggregate import aggregate
from tasks.await_gradients import await_gradients
from tasks.background import prefect_events
from tasks.background.check_work import checked_work
from tasks.background.evaluate import LazyEvaluator, evaluate
from tasks.background.keep_model import keep_model
from tasks.background.keep_queue import kept_queue
from tasks.background.push_to_hub import HubPushes, hub_pushes
from tasks.background.report import report
from tasks.background.supply_shifts import supplied_shifts
from tasks.become_coordinator import become_coordinator
from tasks.create_units import create_units
from tasks.enter_queue import enter_queue
from tasks.push import push
from tasks.run_log import show_log
from tasks.sample import sample

if TYPE_CHECKING:
    from gan_core.coordinator.coordinator import Coordinator

log = logging.getLogger("classgan.train")

WAITING = 8  # samples, evaluations and pushes that may be behind; each holds a copy of the generator

Name = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$",
        description="Name of the training: small letters, digits and dashes. An existing one is continued.",
    ),
]


@flow(  # ty: ignore[no-matching-overload]  Prefect declares task_runner narrower than what it takes
    name="train",
    flow_run_name="train {name}",
    persist_result=False,
    task_runner=ThreadPoolTaskRunner(max_workers=1),  # what runs beside the iterations: one at a time, in order
    description="Trains one GAN with all students' machines. Started again with the same name, it continues.",
)
def train(name: Name = "digits", plan: Plan = PRESETS["demo"], demand: Demand = Demand()) -> int:  # noqa: B008  frozen
    """Iterate until the plan is fulfilled; returns the number of iterations made in all, 0 if it has to wait in the queue.

    Args:
        name: Small letters, digits and dashes. A training that exists is continued.
        plan: Every knob of the training. As it stands: handwritten digits, less than two minutes on two cores.
        demand: What it asks of the class: priority, GPUs, numbers of workers. A new training waits in the queue if it has to.
    """
    show_log()
    if waits := enter_queue(name, plan, demand):
        log.info("%s. It starts by itself.", waits)
        return 0
    while True:
        try:
            with (
                become_coordinator(name, plan) as training,
                supplied_shifts(name, lambda: training.plan.cluster_shifts),
                kept_queue(settings().database_url),
                checked_work(training),
                hub_pushes() as hub,
            ):
                _iterate(training, hub)
                return training.state.iteration
        except Finished as exc:
            prefect_events.ended(name)
            log.info("Training %r: %s.", name, exc)
            return exc.iteration
        except LeadLost as exc:
            log.warning("%s It stands by from now on.", exc)


def _iterate(training: "Coordinator", hub: HubPushes) -> None:
    """Iterations, one after the other, to the plan's end; samples, evaluations and pushes beside them."""
    background: list[PrefectFuture] = []
    evaluating: PrefectFuture | None = None
    evaluator = LazyEvaluator(training.images)
    while not training.is_done:
        training.stop_if_asked()
        number = training.state.iteration
        create_units(training, number)
        gathered = await_gradients(training, number)
        if isinstance(gathered, Finished):
            raise gathered
        aggregate(training, number, gathered)
        prefect_events.moved(training.name)
        background = [future for future in background if not _is_done(future)]
        if len(background) > WAITING and not training.is_done:
            if training.is_due(training.plan.sample_interval):
                log.info(
                    "Iteration %d isn't drawn: %d samples, evaluations and pushes still wait.",
                    number + 1,
                    len(background),
                )
            continue  # the class is faster than they are, or Prefect's server is away and they wait for it
        if training.is_due(training.plan.sample_interval):
            background.append(sample.submit(training.snapshot(), is_last=training.is_done))
        behind = evaluating is not None and not _is_done(evaluating) and not training.is_done
        if training.is_due(training.plan.evaluate_interval) and not behind:  # it takes seconds: never two in a queue
            background.append(evaluating := evaluate.submit(training.snapshot(), evaluator))
        if training.is_due(training.plan.push_interval):
            background.append(push.submit(training.snapshot(), hub, is_last=training.is_done))
    training.finish()
    prefect_events.ended(training.name)
    background.append(report.submit(training.name))
    background.append(keep_model.submit(training.name))
    for future in background:
        future.wait()


def _is_done(future: PrefectFuture) -> bool:
    """Without asking the server, which may be away: `future.state` would wait for it, and the training with it."""
    return isinstance(future, PrefectConcurrentFuture) and future.wrapped_future.done()
