"""The class as a service: HTTP and JSON under /classgan/v1 of the class server, for whoever is logged in there.

Thin: it checks who may, and calls what the commands call. The database is asked in threads, with the instructor's login.
"""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from deployments.server.gate.runs import Inner
from deployments.server.service import actions, models, results, trainings, workers
from deployments.server.service.database import Database
from deployments.server.service.parameters import PREFIX
from deployments.server.service.problems import MEDIA, answer_problems

TEXTS = {
    400: "The body is no JSON.",
    401: "No login of this class.",
    403: "Not theirs to do.",
    404: "Not there, or not theirs.",
    408: "The body did not come in time.",
    409: "Its state doesn't allow that, or the name is taken.",
    413: "More than a megabyte.",
    422: "A value is impossible: field, value and what is possible.",
    429: "More requests than a person makes; Retry-After says when to ask again.",
    500: "The class server has failed; its log says more.",
    503: "The database doesn't answer; Retry-After says when to ask again.",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
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
    database = Database(database_url)
    for router in (
        trainings.routes(database),
        actions.routes(database),
        results.routes(database, inner),
        workers.routes(database),
    ):
        app.include_router(router, prefix=PREFIX, responses=PROBLEMS)
    _complete(app.openapi())
    return app


def _complete(document: dict[str, Any]) -> None:
    """Add to the OpenAPI document, which the app keeps, what FastAPI can't know: the form of refusals, and the gate's login."""
    problem = models.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    components = document["components"]
    components["schemas"] |= {**problem.pop("$defs"), "Problem": problem}
    components["securitySchemes"] = {
        "login": {"type": "http", "scheme": "basic", "description": "Login and secret, as in the invite."}
    }
    document["security"] = [{"login": []}]
