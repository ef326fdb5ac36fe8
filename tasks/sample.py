"""Draw the fixed-noise grid, and show how the training stands."""

import base64
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator import Snapshot

log = logging.getLogger("classgan.sample")


@task(task_run_name="sample it {snapshot.iteration}", cache_policy=NO_CACHE, persist_result=False)
def sample(snapshot: "Snapshot") -> None:
    """Store the grid of this snapshot as PNG: in the database, in the outputs folder, and as artifacts in Prefect."""
    from gan_core import pictures
    from gan_core.store import ledger, trainings
    from gan_core.store.engine import connect

    png = pictures.sample_grid(snapshot.plan, snapshot.average)
    pictures.write(settings().outputs / snapshot.name / "samples" / f"iteration_{snapshot.iteration:06d}.png", png)
    with connect(settings().database_url) as connection:
        trainings.save_sample(connection, snapshot.training_id, snapshot.iteration, png)
        overview = ledger.overview(connection, snapshot.name)
        workers = ledger.workers(connection)
    assert overview is not None
    progress = snapshot.plan.progress(overview.iteration, overview.position, overview.data_images)
    line = status_line(overview, progress)
    try:
        create_markdown_artifact(
            key=f"samples-{snapshot.name}",
            description=f"Samples of {snapshot.name} after iteration {snapshot.iteration}",
            markdown=f"# {snapshot.name}, iteration {snapshot.iteration}\n\n{line}\n\n"
            f'<img alt="64 samples" width="528" src="data:image/png;base64,{base64.b64encode(png).decode()}">\n',
        )
        create_progress_artifact(progress=100 * progress, key=f"progress-{snapshot.name}", description=line)
        create_table_artifact(
            key=f"workers-{snapshot.name}",
            description="Who computes, by accepted images",
            table=[
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
            ],
        )
    except Exception as exc:  # noqa: BLE001  a picture that can't be shown must not end a training
        log.warning("Prefect did not take the artifacts of iteration %d: %s", snapshot.iteration, exc)


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


if TYPE_CHECKING:
    from gan_core.store import ledger
