"""Routes for the results of a training: history, figures, log, samples, generator."""

from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import FileResponse

from deployments.server.gate.runs import Inner, Refused
from deployments.server.service import models
from deployments.server.service.database import Database, finite
from deployments.server.service.parameters import BIGGEST, PREFIX, After, Limit, Name, Who
from gan_core.settings import settings
from gan_core.store.coordinator import events
from gan_core.store.viewers import ledger, watching

SAFETENSORS = "application/octet-stream"


def routes(database: Database, inner: Inner) -> APIRouter:
    router = APIRouter(tags=["records"])

    @router.get("/trainings/{name}/events")
    async def history(who: Who, name: Name, after: After = 0, limit: Limit = 50) -> models.Happenings:
        """What happened beyond the ordinary, in sentences; students read nothing about others' honesty."""
        found = await database.ask(
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
        found = await database.ask(lambda c: ledger.history_after(c, who.ticket(c, name).id, after, limit))
        items = [models.Iteration.model_validate(finite(row)) for row in found]
        return models.Iterations(items=items, next=items[-1].number if len(items) == limit else None)

    @router.get("/trainings/{name}/logs")
    async def logs(who: Who, name: Name, after: After = 0, limit: Limit = 200) -> models.Lines:
        """What its coordinators logged in Prefect; `after` counts lines. Only the instructor: it names logins and folders."""
        who.require_instructor("reads the coordinator's log; `events` tells what happened")
        await database.ask(lambda c: who.ticket(c, name))
        runs = await _prefect(inner, "/flow_runs/filter", {"flow_runs": {"name": {"any_": [f"train {name}"]}}})
        wanted = {"flow_run_id": {"any_": [run["id"] for run in runs]}}
        body = {"logs": wanted, "sort": "TIMESTAMP_ASC", "offset": min(after, BIGGEST), "limit": min(limit, 200)}
        found = await _prefect(inner, "/logs/filter", body) if runs else []
        items = [models.Line(at=line["timestamp"], level=line["level"], text=line["message"]) for line in found]
        return models.Lines(items=items, next=after + len(items) if len(items) == body["limit"] else None)

    @router.get("/trainings/{name}/artifacts")
    async def artifacts(who: Who, name: Name) -> models.Artifacts:
        """Its files: every grid of samples, and the newest generator."""
        numbers = await database.ask(lambda c: watching.sample_iterations(c, who.ticket(c, name).id))
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
        png = await database.ask(lambda c: watching.sample(c, who.ticket(c, name).id, iteration))
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
        await database.ask(lambda c: who.ticket(c, name))
        path = _generator(name)
        if not path.exists():
            raise Refused(404, f"{name} has published no generator yet. It does every `push_interval` iterations.")
        return FileResponse(path, media_type=SAFETENSORS, filename=f"{name}.safetensors")

    return router


def _generator(name: str) -> File:
    return settings().outputs / name / "generator.safetensors"


async def _prefect(inner: Inner, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await inner.call("POST", path, body)
    if answer.status_code != 200:
        raise Refused(503, f"Prefect answered {answer.status_code}. Ask again.")
    return answer.json()
