"""The class as a service: HTTP and JSON under /classgan/v1 of the class server, for whoever is logged in there.

Thin: it checks who may, and calls what the commands call. The database is asked in threads, with the instructor's login.
"""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from deployments.gate.runs import Inner
from deployments.service import actions, models, records, trainings, workers
from deployments.service.asking import PREFIX
from deployments.service.desk import Desk
from deployments.service.problems import answer_problems

TEXTS = {
    400: "The body is no JSON.",
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
    for router in (trainings.routes(desk), actions.routes(desk), records.routes(desk, inner), workers.routes(desk)):
        app.include_router(router, prefix=PREFIX, responses=PROBLEMS)
    return app
