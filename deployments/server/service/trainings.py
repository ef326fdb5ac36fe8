"""Routes for trainings: submit, list, look, wait."""

import asyncio
import time
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Response
from psycopg import Connection

from deployments.server.service import models
from deployments.server.service.database import Database, tag_of
from deployments.server.service.parameters import PREFIX, After, Limit, Name, Who
from gan_core.scheduler.survey import queue_rows
from gan_core.store.scheduler import submissions
from gan_core.units import TrainingState

LONGEST_WAIT = 30  # seconds of a long poll
POLL = 1.0  # seconds between looks


def routes(database: Database) -> APIRouter:
    router = APIRouter(tags=["trainings"])

    @router.get("/me")
    async def me(who: Who) -> models.Me:
        """Who asks, and what they may do."""
        return models.Me(
            login=who.login,
            is_instructor=who.is_instructor,
            may_submit=who.may_submit,
            version=version("classgan"),
        )

    @router.post(
        "/trainings",
        status_code=201,
        responses={200: {"description": "The same key: it was there.", "model": models.Status}},
    )
    async def submit(
        who: Who,
        response: Response,
        body: Annotated[models.AnyShape, Body(openapi_examples=models.SHAPES)],
        idempotency_key: Annotated[
            str,
            Header(
                max_length=200,
                pattern=r"^[\x21-\x7e]*$",
                description="A second request with the same key makes no second training.",
            ),
        ] = "",
    ) -> models.Status:
        """Take a training into the queue: in our own shape, as a scheduler's task, or as a training service's job."""
        given = body.model_dump(mode="json", exclude_unset=True)

        def work(connection: Connection) -> tuple[models.Status, bool]:
            made, is_new = database.submit(connection, who, given, idempotency_key)
            return database.status(connection, who, made.name, fresh=True), is_new

        status, is_new = await database.ask(work)
        response.status_code = 201 if is_new else 200
        response.headers["Location"] = f"{PREFIX}/trainings/{status.name}"
        return status

    @router.get("/trainings")
    async def trainings(
        who: Who, state: TrainingState | None = None, after: After = 0, limit: Limit = 50
    ) -> models.Trainings:
        """The caller's trainings, the newest first; the instructor's are all."""
        found = await database.ask(lambda c: submissions.tickets(c, who.owner, state, after, limit))
        items = [models.Brief.model_validate(ticket) for ticket in found]
        return models.Trainings(items=items, next=items[-1].id if len(items) == limit else None)

    @router.get(
        "/trainings/{name}",
        response_model=models.Status,
        responses={304: {"description": "Nothing has changed since."}},
    )
    async def status(
        who: Who,
        name: Name,
        response: Response,
        wait: Annotated[int, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a change.")] = 0,
        since: Annotated[str, Query(max_length=100, description="The ETag of what is known already.")] = "",
        if_none_match: Annotated[str, Header(max_length=1_000)] = "",
    ) -> Any:
        """Where it stands. With `wait` and `since` it answers as soon as something has changed."""
        until = time.monotonic() + wait
        while True:
            found = await database.ask(lambda c: database.status(c, who, name))
            tag = tag_of(found)
            if tag != since and tag not in if_none_match:
                response.headers["ETag"] = tag
                return found
            if time.monotonic() >= until:
                return Response(status_code=304, headers={"ETag": tag})
            await asyncio.sleep(POLL)

    @router.get("/queue")
    async def queue(who: Who) -> list[models.Waiting]:
        """What runs and what waits, in its order; students see theirs, with their places among all."""
        rows = await database.ask(lambda c: queue_rows(database.survey(c)))
        mine = [row for row in rows if who.owner in (None, row["owner"])]
        return [models.Waiting.model_validate(row) for row in mine]

    return router
