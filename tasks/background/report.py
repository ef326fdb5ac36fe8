"""The report at a training's end: a page in the outputs folder and in Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.files import write_whole
from gan_core.settings import settings
from tasks.background import artifacts


@task(task_run_name="report", cache_policy=NO_CACHE, persist_result=False)
def report(name: str) -> str:
    """Write report.md with the curves beside it, and show it in Prefect with the pictures inside; returns its file."""
    from gan_core.exports import reports
    from gan_core.quality import pictures
    from gan_core.quality.curves import draw_curves
    from gan_core.store.engine import Link

    folder = settings().outputs / name
    with Link(settings().database_url) as link:
        told = link.call(lambda c: reports.training_record(c, name))
    curves = draw_curves(told.history, told.evaluations)
    write_whole(folder / "curves.png", curves)
    shown = {"curves.png": curves}
    sources = {"curves.png": "curves.png"}
    if grids := sorted((folder / "samples").glob("iteration_*.png")):
        shown["samples.png"], sources["samples.png"] = grids[-1].read_bytes(), f"samples/{grids[-1].name}"
    path = folder / "report.md"
    write_whole(path, reports.report(told, sources).encode())
    with artifacts.skipped_if_prefect_is_away(f"the report of {name}"):
        artifacts.show_report(name, reports.report(told, {n: pictures.data_uri(png) for n, png in shown.items()}))
    return str(path)
