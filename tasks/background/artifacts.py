"""What Prefect shows of a training beside its runs: samples, progress, who computes, the leaderboard, the final report."""

import logging
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

if TYPE_CHECKING:
    from gan_core.store.viewers.ledger import Credit, WorkerRow

log = logging.getLogger("classgan.artifacts")

STATUS_SECONDS = 10.0  # between two updates of progress and tables: each costs the Prefect server 0.1 s
RETRIES = 2  # of a call: a server that is away isn't waited for
_shown_at: dict[str, float] = {}  # training → when its status was shown
_progress: dict[str, UUID] = {}  # training → its progress artifact, which is updated


@contextmanager
def skipped_if_prefect_is_away(what: str) -> Generator[None]:
    """A picture that can't be shown must not end a training, nor keep it waiting."""
    try:
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: RETRIES}):
            yield
    except Exception as exc:  # noqa: BLE001  whatever Prefect's client comes with
        log.warning(
            "Prefect did not take %s, and it is skipped: %s", what, str(exc).splitlines()[0] if str(exc) else exc
        )


def show_samples(name: str, iteration: int, line: str, png: bytes) -> None:
    """The grid, as the newest version of the training's sample artifact."""
    from gan_core.quality.pictures import data_uri

    create_markdown_artifact(
        key=f"samples-{name}",
        description=f"Samples of {name} after iteration {iteration}",
        markdown=f'# {name}, iteration {iteration}\n\n{line}\n\n<img alt="samples" width="528" src="{data_uri(png)}">\n',
    )


def is_status_due(name: str, is_last: bool) -> bool:
    """Whether to show it again: every few seconds, and at the end. Asked before anything is read for it."""
    return is_last or time.monotonic() - _shown_at.get(name, -STATUS_SECONDS) >= STATUS_SECONDS


def show_status(
    name: str, line: str, progress: float, workers: Sequence["WorkerRow"], credits: Sequence["Credit"]
) -> None:
    """Progress, who computes and the leaderboard."""
    _shown_at[name] = time.monotonic()
    if name not in _progress:
        made = create_progress_artifact(progress=100 * progress, key=f"progress-{name}", description=line)
        _progress[name] = cast(UUID, made)  # Prefect's types name its async twin, too
    else:
        update_progress_artifact(_progress[name], progress=100 * progress, description=line)
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
    create_table_artifact(key="leaderboard", description="Who did how much, in all trainings", table=ranked(credits))


def show_report(name: str, markdown: str) -> None:
    """The end of a training."""
    create_markdown_artifact(key=f"report-{name}", description=f"How {name} went", markdown=markdown)


def ranked(credits: Sequence["Credit"]) -> list[dict[str, object]]:
    """Rows of the leaderboard: students with credited images, the most first; who has as many has the same rank."""
    total = sum(credit.images for credit in credits)
    rows: list[dict[str, object]] = []
    for place, credit in enumerate((c for c in credits if c.images), start=1):
        same = rows and rows[-1]["images"] == credit.images
        rows.append(
            {
                "rank": rows[-1]["rank"] if same else place,
                "student": credit.display_name,
                "images": credit.images,
                "units": credit.units,
                "share": f"{credit.images / total:.1%}",
            }
        )
    return rows
