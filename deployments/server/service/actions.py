"""Routes that act on a training: pause, resume, cancel, retry, priority, move."""

from collections.abc import Callable

from fastapi import APIRouter
from psycopg import Connection

from deployments.server.service import models
from deployments.server.service.database import Database, require_failed
from deployments.server.service.parameters import Name, Who
from deployments.server.service.rights import Caller
from gan_core.scheduler.survey import Rules, move
from gan_core.settings import settings
from gan_core.store.scheduler import submissions
from tasks import control


def routes(database: Database) -> APIRouter:
    router = APIRouter(tags=["actions"])

    async def act(who: Caller, name: str, work: Callable[[Connection, str], str]) -> models.Sentence:
        def done(connection: Connection) -> models.Sentence:
            who.ticket(connection, name)
            said = work(connection, who.author(connection))
            return models.Sentence(message=said, state=who.ticket(connection, name).state)

        return await database.ask(done)

    @router.post("/trainings/{name}/pause")
    async def pause(who: Who, name: Name) -> models.Sentence:
        """Pause it: no more units are handed out, leased units are still accepted."""
        return await act(who, name, lambda c, author: control.pause(c, name, author))

    @router.post("/trainings/{name}/cancel")
    async def cancel(who: Who, name: Name) -> models.Sentence:
        """End it for good. Credit and samples stay."""
        return await act(who, name, lambda c, author: control.cancel(c, name, author))

    @router.post("/trainings/{name}/resume")
    async def resume(who: Who, name: Name) -> models.Sentence:
        """Put it back into the queue, which starts it when its turn comes."""
        return await act(who, name, lambda c, author: database.go_on(c, who, lambda: control.requeue(c, name, author)))

    @router.post("/trainings/{name}/retry")
    async def retry(who: Who, name: Name) -> models.Sentence:
        """Try a failed one again, from its newest checkpoint."""

        def work(connection: Connection, author: str) -> str:
            require_failed(who.ticket(connection, name))
            return database.go_on(connection, who, lambda: control.requeue(connection, name, author))

        return await act(who, name, work)

    @router.post("/trainings/{name}/priority")
    async def priority(who: Who, name: Name, body: models.Priority) -> models.Sentence:
        """Let it come before or after others. Students may only lower it."""

        def work(connection: Connection, author: str) -> str:
            ticket = who.ticket(connection, name)
            who.require_priority(ticket.priority, body.priority)
            submissions.set_priority(connection, ticket.id, body.priority)
            return f"{name} has priority {body.priority} now."

        return await act(who, name, work)

    @router.post("/trainings/{name}/move")
    async def place(who: Who, name: Name, body: models.Move) -> models.Sentence:
        """Put it at the top of the queue, or right behind another one. Only the instructor."""
        who.require_instructor("changes the order of the queue")
        return await act(who, name, lambda c, author: move(c, name, body.after, Rules.of(settings())))

    return router
