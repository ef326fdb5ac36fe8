"""Draw the fixed-noise grid, and show how the training stands."""

import base64
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator import Snapshot
    from gan_core.store import ledger

log = logging.getLogger("classgan.sample")

STATUS_SECONDS = 10.0  # between two updates of progress and workers: each costs the Prefect server 0.1 s
_shown_at = -STATUS_SECONDS


@task(task_run_name="sample it {snapshot.iteration}", cache_policy=NO_CACHE, persist_result=False)
def sample(snapshot: "Snapshot", is_last: bool = False) -> None:
    """Store the grid of this snapshot as PNG: in the database, in the outputs folder, and as artifacts in Prefect."""
    from gan_core import pictures
    from gan_core.store import ledger, trainings
    from gan_core.store.engine import Link

    png = pictures.sample_grid(snapshot.plan, snapshot.average)
    pictures.write(settings().outputs / snapshot.name / "samples" / f"iteration_{snapshot.iteration:06d}.png", png)
    with Link(settings().database_url) as link:
        link.call(lambda c: trainings.save_sample(c, snapshot.training_id, snapshot.iteration, png))
        overview = link.call(lambda c: ledger.overview(c, snapshot.name))
        workers = link.call(lambda c: ledger.workers(c, snapshot.name))
    assert overview is not None
    try:
        _show(snapshot, png, overview, workers, is_last)
    except Exception as exc:  # noqa: BLE001  a picture that can't be shown must not end a training
        log.warning("Prefect did not take the artifacts of iteration %d: %s", snapshot.iteration, exc)


def _show(
    snapshot: "Snapshot", png: bytes, overview: "ledger.Overview", workers: list["ledger.WorkerRow"], is_last: bool
) -> None:
    """Artifacts: the grid each time, progress and workers every few seconds."""
    global _shown_at
    name, progress = snapshot.name, snapshot.plan.progress(overview.iteration, overview.position, overview.data_images)
    line = status_line(overview, progress)
    picture = f'<img alt="samples" width="528" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    create_markdown_artifact(
        key=f"samples-{name}",
        description=f"Samples of {name} after iteration {snapshot.iteration}",
        markdown=f"# {name}, iteration {snapshot.iteration}\n\n{line}\n\n{picture}\n",
    )
    if time.monotonic() - _shown_at < STATUS_SECONDS and not is_last:
        return
    _shown_at = time.monotonic()
    create_progress_artifact(progress=100 * progress, key=f"progress-{name}", description=line)
    rows = [
        {
            "worker": w.name,
            "student": w.student,
            "state": "online" if w.is_online else "offline",
            "units": w.units,
            "images": w.images,
            "images/s": round(w.images_per_second or 0),
            "last message": w.message,
        }
        for w in workers
    ]
    create_table_artifact(key=f"workers-{name}", description="Who computes, by accepted images", table=rows)


def status_line(overview: "ledger.Overview", progress: float) -> str:
    """Iteration, losses, speed and time left, in one line."""
    parts = [
        f"iteration {overview.iteration:,}",
        f"{overview.images:,} images seen",
        f"{overview.images_per_second:,.0f} images/s",
    ]
    if overview.last:
        parts.append(f"loss G {overview.last.g_loss:.2f} D {overview.last.d_loss:.2f}")
    if 0 < progress < 1 and overview.images_per_second:
        left = overview.images / progress * (1 - progress) / overview.images_per_second
        parts.append(f"about {timedelta(seconds=round(left))} left")
    return " · ".join(parts)
