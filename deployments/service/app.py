"""The class as a service: HTTP and JSON under /classgan/v1 of the class server, for whoever is logged in there.

Thin: it checks who may, and calls what the commands call. The database is asked in threads, with the instructor's login.
"""

import asyncio
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse
from psycopg import Connection

from deployments.commands.queue import queue_rows
from deployments.gate.runs import Inner, Refused
from deployments.service import models
from deployments.service.desk import Desk, finite, require_failed, require_known, tag_of
from deployments.service.problems import answer_problems
from deployments.service.rights import Caller
from gan_core.scheduling import Rules, move
from gan_core.settings import settings
from gan_core.store import events, ledger, placements, submissions, watching
from gan_core.units import TrainingState
from tasks import control

PREFIX = "/classgan/v1"
WHO = "classgan.login"  # in the scope: who the gate let in
LONGEST_WAIT = 30  # seconds of a long poll
POLL = 0.5  # seconds between looks
BIGGEST = 2**31 - 1

Name = Annotated[str, Path(pattern=models.NAME, description="Of the training.", examples=["digits-2"])]
After = Annotated[int, Query(ge=0, le=2**53, description="What the page before gave as `next`. 0: from the start.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Of items in a page.")]
TEXTS = {
    401: "No login of this class.",
    403: "Not theirs to do.",
    404: "Not there, or not theirs.",
    409: "Its state doesn't allow that, or the name is taken.",
    413: "More than a megabyte.",
    422: "A value is impossible: field, value and what is possible.",
    429: "More requests than a person makes.",
    503: "The database doesn't answer; Retry-After says when to ask again.",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {"application/problem+json": {"schema": models.Problem.model_json_schema()}},
    }
    for status, text in TEXTS.items()
}


def caller_of(request: Request) -> Caller:
    return Caller(request.scope[WHO])


Who = Annotated[Caller, Depends(caller_of)]


def service_app(database_url: str, inner: Inner) -> FastAPI:
    """The service as an ASGI app. Its scope must say in `WHO` who was let in.

    Args:
        database_url: as the instructor.
        inner: Prefect's API, for logs.
    """
    app = FastAPI(
        title="classgan",
        version=version("classgan"),
        description="Trainings of a class: submitted, watched, ended. Log in with Basic authentication.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its page would fetch scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    answer_problems(app)
    desk = Desk(database_url)
    for router in (_trainings(desk), _actions(desk), _records(desk, inner), _workers(desk)):
        app.include_router(router, prefix=PREFIX, responses=PROBLEMS)
    return app


def _trainings(desk: Desk) -> APIRouter:
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
        request: Request,
        response: Response,
        body: Annotated[models.AnyShape, Body(openapi_examples=models.SHAPES)],
        idempotency_key: Annotated[
            str, Header(max_length=200, pattern=r"^[\x21-\x7e]*$", description="The same again is the same training.")
        ] = "",
    ) -> models.Status:
        """Take a training into the queue: in our own shape, as a scheduler's task, or as a training service's job."""
        given = body.model_dump(mode="json", exclude_unset=True)

        def work(connection: Connection) -> tuple[models.Status, bool]:
            made, is_new = desk.submit(connection, who, given, idempotency_key)
            return desk.status(connection, who, made.name, fresh=True), is_new

        status, is_new = await desk.ask(work)
        response.status_code = 201 if is_new else 200
        response.headers["Location"] = f"{PREFIX}/trainings/{status.name}"
        return status

    @router.get("/trainings")
    async def trainings(
        who: Who, state: TrainingState | None = None, after: After = 0, limit: Limit = 50
    ) -> models.Trainings:
        """The caller's trainings, the newest first; the instructor's are all."""
        found = await desk.ask(lambda c: submissions.tickets(c, who.owner, state, after, limit))
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
            found = await desk.ask(lambda c: desk.status(c, who, name))
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
        rows = await desk.ask(lambda c: queue_rows(desk.survey(c)))
        mine = [row for row in rows if who.owner in (None, row["owner"])]
        return [models.Waiting.model_validate(row) for row in mine]

    return router


def _actions(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["actions"])

    async def act(who: Caller, name: str, work: Callable[[Connection, str], str]) -> models.Sentence:
        def done(connection: Connection) -> models.Sentence:
            who.ticket(connection, name)
            said = work(connection, who.author(connection))
            return models.Sentence(message=said, state=who.ticket(connection, name).state)

        return await desk.ask(done)

    @router.post("/trainings/{name}/pause")
    async def pause(who: Who, name: Name) -> models.Sentence:
        """Hand nothing out any more; what is being computed is still accepted."""
        return await act(who, name, lambda c, author: control.pause(c, name, author))

    @router.post("/trainings/{name}/cancel")
    async def cancel(who: Who, name: Name) -> models.Sentence:
        """End it for good. Credit and samples stay."""
        return await act(who, name, lambda c, author: control.cancel(c, name, author))

    @router.post("/trainings/{name}/resume")
    async def resume(who: Who, name: Name) -> models.Sentence:
        """Put it back into the queue, which starts it when its turn comes."""
        return await act(who, name, lambda c, author: desk.go_on(c, who, lambda: control.requeue(c, name, author)))

    @router.post("/trainings/{name}/retry")
    async def retry(who: Who, name: Name) -> models.Sentence:
        """Try a failed one again, from its newest checkpoint."""

        def work(connection: Connection, author: str) -> str:
            require_failed(who.ticket(connection, name))
            return desk.go_on(connection, who, lambda: control.requeue(connection, name, author))

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


def _records(desk: Desk, inner: Inner) -> APIRouter:
    router = APIRouter(tags=["records"])

    @router.get("/trainings/{name}/events")
    async def history(who: Who, name: Name, after: After = 0, limit: Limit = 50) -> models.Happenings:
        """What happened beyond the ordinary, in sentences; students read nothing about others' honesty."""
        found = await desk.ask(
            lambda c: events.after(c, who.ticket(c, name).id, after, limit, everything=who.is_instructor)
        )
        items = [models.Happening.model_validate(event) for event in found]
        return models.Happenings(items=items, next=items[-1].id if len(items) == limit else None)

    @router.get("/trainings/{name}/metrics")
    async def metrics(
        who: Who,
        name: Name,
        after: Annotated[int, Query(ge=-1, le=BIGGEST, description="An iteration; -1: from the start.")] = -1,
        limit: Limit = 50,
    ) -> models.Iterations:
        """Every closed iteration: losses, images, machines, seconds."""
        found = await desk.ask(lambda c: ledger.history_after(c, who.ticket(c, name).id, after, limit))
        items = [models.Iteration.model_validate(finite(row)) for row in found]
        return models.Iterations(items=items, next=items[-1].number if len(items) == limit else None)

    @router.get("/trainings/{name}/logs")
    async def logs(who: Who, name: Name, after: After = 0, limit: Limit = 200) -> models.Lines:
        """What its coordinators logged in Prefect; `after` counts lines. Only the instructor: it names logins and folders."""
        who.require_instructor("reads the coordinator's log; `events` tells what happened")
        await desk.ask(lambda c: who.ticket(c, name))
        runs = await _prefect(inner, "/flow_runs/filter", {"flow_runs": {"name": {"any_": [f"train {name}"]}}})
        wanted = {"flow_run_id": {"any_": [run["id"] for run in runs]}}
        body = {"logs": wanted, "sort": "TIMESTAMP_ASC", "offset": min(after, BIGGEST), "limit": min(limit, 200)}
        found = await _prefect(inner, "/logs/filter", body) if runs else []
        items = [models.Line(at=line["timestamp"], level=line["level"], text=line["message"]) for line in found]
        return models.Lines(items=items, next=after + len(items) if len(items) == body["limit"] else None)

    @router.get("/trainings/{name}/artifacts")
    async def artifacts(who: Who, name: Name) -> models.Artifacts:
        """Its files: every grid of samples, and the newest generator."""
        numbers = await desk.ask(lambda c: watching.sample_iterations(c, who.ticket(c, name).id))
        here = f"{PREFIX}/trainings/{name}"
        items = [
            models.Artifact(kind="samples", iteration=n, media_type="image/png", href=f"{here}/samples/{n}")
            for n in numbers
        ]
        if _generator(name).exists():
            weights = {"iteration": None, "media_type": SAFETENSORS, "href": f"{here}/generator"}
            items.append(models.Artifact(kind="generator", **weights))
        return models.Artifacts(items=items, next=None)

    @router.get(
        "/trainings/{name}/samples/{iteration}",
        response_class=Response,
        responses={200: {"description": "A grid.", "content": {"image/png": {}}}},
    )
    async def samples(who: Who, name: Name, iteration: Annotated[int, Path(ge=0, le=BIGGEST)]) -> Response:
        """The grid that was drawn after an iteration."""
        png = await desk.ask(lambda c: watching.sample(c, who.ticket(c, name).id, iteration))
        if png is None:
            raise Refused(404, f"No samples of {name} are kept for iteration {iteration}. GET artifacts lists them.")
        return Response(png, media_type="image/png")

    @router.get(
        "/trainings/{name}/generator",
        response_class=Response,
        responses={200: {"description": "The generator.", "content": {SAFETENSORS: {}}}},
    )
    async def generator(who: Who, name: Name) -> Response:
        """The newest published generator, which `classgan generate` draws with."""
        await desk.ask(lambda c: who.ticket(c, name))
        path = _generator(name)
        if not path.exists():
            raise Refused(404, f"{name} has published no generator yet. It does every `push_interval` iterations.")
        return FileResponse(path, media_type=SAFETENSORS, filename=f"{name}.safetensors")

    return router


SAFETENSORS = "application/octet-stream"


def _generator(name: str) -> File:
    return settings().outputs / name / "generator.safetensors"


async def _prefect(inner: Inner, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await inner.call("POST", path, body)
    if answer.status_code != 200:
        raise Refused(503, f"Prefect answered {answer.status_code}. Ask again.")
    return answer.json()


def _workers(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["workers"])
    Machine = Annotated[str, Path(pattern=r"^[\w.:\- ]{1,80}$", description="Name of the worker.")]

    @router.get("/workers")
    async def workers(who: Who) -> list[models.Worker]:
        """Every machine, with what was last said to it."""
        if who.is_instructor:
            rows = await desk.ask(ledger.workers)
            return [models.Worker.model_validate(row, from_attributes=True) for row in rows]
        seen = await desk.ask(watching.machines)
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

        await desk.ask(work)

    @router.post("/workers/{name}/drain", status_code=204)
    async def stop(who: Who, name: Machine) -> None:
        """Let it finish what it has, and give it nothing new. Only the instructor."""
        await drain(who, name, who.login)

    @router.post("/workers/{name}/undrain", status_code=204)
    async def start(who: Who, name: Machine) -> None:
        """Give it work again. Only the instructor."""
        await drain(who, name, "")

    return router
