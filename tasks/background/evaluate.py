"""Measure how good the samples are, beside the training."""

import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.files import write_whole
from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator.checkpoints import Snapshot
    from gan_core.data.images import ImageSet
    from gan_core.quality.scores import Evaluator

log = logging.getLogger("classgan.evaluate")


class LazyEvaluator:
    """The real images' side of the figures, measured at the first use. No dataclass: Prefect looks into those."""

    def __init__(self, images: "ImageSet") -> None:
        self._images = images
        self._evaluator: Evaluator | None = None

    def evaluator(self) -> "Evaluator":
        from gan_core.quality.scores import Evaluator

        if self._evaluator is None:
            self._evaluator = Evaluator(self._images)
        return self._evaluator


@task(task_run_name="evaluate it {snapshot.iteration}", cache_policy=NO_CACHE, persist_result=False)
def evaluate(snapshot: "Snapshot", evaluator: LazyEvaluator) -> str:
    """Store this snapshot's quality scores and the curves; a mode collapse is written into the training's history.

    Returns the figures in a sentence.
    """
    from gan_core.quality import scores
    from gan_core.quality.curves import draw_curves
    from gan_core.store.coordinator import evaluations, events
    from gan_core.store.engine import Link
    from gan_core.store.viewers import ledger
    from gan_core.units import EventKind

    began = time.monotonic()
    found = scores.scores_of(snapshot.plan, snapshot.average, evaluator.evaluator())
    took, training = time.monotonic() - began, snapshot.training_id
    with Link(settings().database_url) as link:
        evaluation = evaluations.Evaluation(
            **asdict(found),
            iteration=snapshot.iteration,
            images=snapshot.images,
            seconds=link.call(lambda c: evaluations.training_seconds(c, training, snapshot.iteration)),
            took=took,
            protocol=scores.PROTOCOL,
        )
        link.call(lambda c: evaluations.save(c, training, evaluation))
        so_far = link.call(lambda c: evaluations.of_training(c, training))
        warning = evaluations.collapse(so_far)
        if warning and not evaluations.collapse(so_far[:-1]):  # said once, when it begins
            link.call(lambda c: events.note(c, training, snapshot.iteration, EventKind.COLLAPSE, warning))
        history = link.call(lambda c: ledger.history(c, training))
    write_whole(settings().outputs / snapshot.name / "curves.png", draw_curves(history, so_far))
    log.info("Quality %s.", evaluation.sentence())
    return evaluation.sentence()
