"""Publish the generator: a folder that anybody can generate from, and a repository on the hub if the plan names one."""

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from gan_core.files import write_whole
from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator.checkpoints import Snapshot
    from tasks.background.push_to_hub import HubPushes


@task(task_run_name="push it {snapshot.iteration}", cache_policy=NO_CACHE, persist_result=False)
def push(snapshot: "Snapshot", hub: "HubPushes", is_last: bool = False) -> str:
    """Write the averaged generator, D and the timeline of samples, and hand all of it to `hub`, which takes its time
    elsewhere; returns the file of the generator.
    """
    from gan_core.exports import reports
    from gan_core.networks import generators
    from gan_core.quality import pictures
    from gan_core.store.coordinator import trainings
    from gan_core.store.engine import Link

    plan, folder = snapshot.plan, settings().outputs / snapshot.name
    path = folder / "generator.safetensors"
    generators.save(path, generators.finished(plan, snapshot.average, snapshot.iteration, snapshot.images))
    generators.save_discriminator(
        folder / "discriminator.safetensors", plan, snapshot.discriminator, snapshot.iteration
    )
    with Link(settings().database_url) as link:
        grids = link.call(lambda c: trainings.samples(c, snapshot.training_id))
        if grids:
            write_whole(folder / "timeline.gif", pictures.timeline(grids))
        if plan.hub_repo:
            told = link.call(lambda c: reports.training_record(c, snapshot.name))
            files = reports.repository(told, folder, f"hub:{plan.hub_repo}", snapshot.iteration, snapshot.images)
            hub.offer(snapshot, files, is_last)
    return str(path)
