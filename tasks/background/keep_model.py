"""Keep what a training has made as a version of its model, and mirror the run into MLflow where that is wanted."""

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.settings import settings

log = logging.getLogger("classgan.models")


@task(task_run_name="keep model", cache_policy=NO_CACHE, persist_result=False)
def keep_model(name: str) -> str:
    """Put the files of the last push into the database as the next version of the training's model; returns its label,
    or "" if nothing was ever pushed.
    """
    from gan_core.errors import MirrorError
    from gan_core.exports import mlflow, model_versions
    from gan_core.networks import generators
    from gan_core.store.engine import connect

    folder, label = settings().outputs / name, ""
    with connect(settings().database_url) as connection:
        if (folder / "generator.safetensors").is_file():
            pushed = generators.load(folder / "generator.safetensors")
            label = model_versions.keep(connection, name, folder, pushed.iteration, pushed.images)
            log.info("The model is kept as %s: classgan models show %s", label, label)
        if settings().mlflow_url:
            try:
                mlflow.mirror(connection, name, settings().mlflow_url)
            except MirrorError as exc:
                log.warning("%s", exc)
    return label
