"""Routes for machines: everybody may list them, the instructor may drain them."""

from typing import Annotated

from fastapi import APIRouter, Path
from psycopg import Connection

from deployments.server.service import models
from deployments.server.service.database import Database, require_known
from deployments.server.service.parameters import Who
from deployments.server.service.rights import Caller
from gan_core.store.scheduler import placements
from gan_core.store.viewers import ledger, watching


def routes(database: Database) -> APIRouter:
    router = APIRouter(tags=["workers"])
    Machine = Annotated[str, Path(pattern=r"^[\w.:\- ]{1,80}$", description="Name of the worker.")]

    @router.get("/workers")
    async def workers(who: Who) -> list[models.Worker]:
        """Every machine, with what was last said to it."""
        if who.is_instructor:
            rows = await database.ask(ledger.workers)
            return [models.Worker.model_validate(row, from_attributes=True) for row in rows]
        seen = await database.ask(watching.machines)
        return [
            models.Worker(
                name=m.name,
                device=m.device,
                images_per_second=m.images_per_second,
                seconds_silent=m.seconds_silent,
                is_online=m.seconds_silent < ledger.ONLINE,
                images=m.images,
                message=m.message,
            )
            for m in seen
        ]

    async def drain(who: Caller, name: str, by: str) -> None:
        who.require_instructor("drains workers")

        def work(connection: Connection) -> None:
            count = placements.drain(connection, name, by)
            require_known(name, count, [] if count else [w.name for w in ledger.workers(connection)])

        await database.ask(work)

    @router.post("/workers/{name}/drain", status_code=204)
    async def stop(who: Who, name: Machine) -> None:
        """Let it finish what it has, and give it nothing new. Only the instructor."""
        await drain(who, name, who.login)

    @router.post("/workers/{name}/undrain", status_code=204)
    async def start(who: Who, name: Machine) -> None:
        """Give it work again. Only the instructor."""
        await drain(who, name, "")

    return router
