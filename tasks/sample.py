"""Draw the fixed-noise grid, and show how the training stands."""

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.files import write_whole
from gan_core.settings import settings
from gan_core.units import counted
from tasks.background import artifacts

if TYPE_CHECKING:
    from gan_core.coordinator.coordinator import Snapshot
    from gan_core.store.viewers import ledger

log = logging.getLogger("classgan.sample")


@task(task_run_name="sample it {snapshot.iteration}", cache_policy=NO_CACHE, persist_result=False)
def sample(snapshot: "Snapshot", is_last: bool = False) -> None:
    """Store the grid of this snapshot as PNG: in the database, in the outputs folder, and as artifacts in Prefect."""
    from gan_core.quality import pictures
    from gan_core.store.coordinator import trainings
    from gan_core.store.engine import Link
    from gan_core.store.viewers import ledger

    png = pictures.sample_grid(snapshot.plan, snapshot.average)
    try:
        write_whole(settings().outputs / snapshot.name / "samples" / f"iteration_{snapshot.iteration:06d}.png", png)
    except OSError as exc:
        log.error("%s: %s. Make room; the database has this picture.", exc.filename, exc.strerror)
    with Link(settings().database_url) as link:
        link.call(lambda c: trainings.save_sample(c, snapshot.training_id, snapshot.iteration, png))
        overview = link.call(lambda c: ledger.overview(c, snapshot.name))
        is_due = artifacts.is_status_due(snapshot.name, is_last)
        workers = link.call(lambda c: ledger.workers(c, snapshot.name)) if is_due else []
        credits = link.call(ledger.credits) if is_due else []  # goes through every contribution
    assert overview is not None
    progress = snapshot.plan.progress(overview.iteration, overview.position, overview.data_images)
    line = status_line(overview, progress)
    with artifacts.skipped_if_prefect_is_away(f"the samples of iteration {snapshot.iteration}"):
        artifacts.show_samples(snapshot.name, snapshot.iteration, line, png)
        if is_due:
            artifacts.show_status(snapshot.name, line, progress, workers, credits)


def status_line(overview: "ledger.Overview", progress: float) -> str:
    """Iteration, losses, speed and time left, in one line."""
    parts = [
        f"iteration {overview.iteration:,}",
        f"{counted(overview.images, 'image')} seen",
    ]
    if overview.images_per_second:  # of one that is over there is no speed any more
        parts.append(f"{overview.images_per_second:,.0f} images/s")
    if overview.last:
        parts.append(f"loss G {overview.last.g_loss:.2f} D {overview.last.d_loss:.2f}")
    if 0 < progress < 1 and overview.images_per_second:
        left = overview.images / progress * (1 - progress) / overview.images_per_second
        parts.append(f"about {timedelta(seconds=round(left))} left")
    return " · ".join(parts)
