"""`classgan push`: a training's generator on the Hugging Face Hub, and whether that would work."""

from rich.console import Console

from deployments.commands.reports import FILE, database_url
from gan_core.errors import HubError
from gan_core.settings import settings
from gan_core.store.engine import connect

console = Console()


def push_training(name: str, repo: str) -> None:
    """Push what `outputs/NAME` holds; `repo` "" is the one in the training's plan.

    Raises:
        DataError: nothing was pushed to that folder yet.
        HubError: neither names a repository, or the hub says no.
    """
    from gan_core import generators
    from gan_core.exports import hub, story

    folder = settings().outputs / name
    with database_url() as url, connect(url) as connection:
        told = story.story(connection, name)
    target = repo or told.plan.hub_repo
    if not target:
        raise HubError(
            f"The plan of {name!r} names no repository. Name one: classgan push {name} --repo OWNER/REPO, "
            f"or for every push: classgan change {name} --set hub_repo=OWNER/REPO"
        )
    hub.require_repo(target)
    generator = generators.load(folder / FILE)
    files = story.repository(told, folder, f"hub:{target}", generator.iteration, generator.images)
    with console.status(f"pushing to {target}"):
        pushed = hub.commit(target, files, f"{name}: iteration {generator.iteration:,}")
    console.print(f"{pushed.files} files after iteration {generator.iteration:,} → {pushed.url}", soft_wrap=True)
    console.print(f"Anybody who may see it: classgan generate hub:{target}", soft_wrap=True)


def check_hub(repo: str) -> None:
    """Show each step of a push as it is tried, with a small file instead of a generator.

    Raises:
        HubError: one failed; the sentence says what to do.
    """
    from gan_core.exports import hub

    for step in hub.check(repo):
        console.print(f"[green]good[/green]  {step}", soft_wrap=True, highlight=False)
    if not repo:
        console.print("Name a repository to see whether this token may write there: --repo OWNER/REPO")
