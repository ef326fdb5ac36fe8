"""Publish the generator: a folder that anybody can generate from."""

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator import Snapshot


@task(task_run_name="push it {snapshot.iteration}", cache_policy=NO_CACHE, persist_result=False)
def push(snapshot: "Snapshot") -> str:
    """Write the averaged generator and the timeline of samples; returns the file of the generator."""
    from gan_core import generators, pictures
    from gan_core.store import trainings
    from gan_core.store.engine import Link

    folder = settings().outputs / snapshot.name
    path = folder / "generator.safetensors"
    generators.save(path, generators.Generator(snapshot.plan, snapshot.average, snapshot.iteration, snapshot.images))
    with Link(settings().database_url) as link:
        grids = link.call(lambda c: trainings.samples(c, snapshot.training_id))
    if grids:
        pictures.write(folder / "timeline.gif", pictures.timeline(grids))
    return str(path)
