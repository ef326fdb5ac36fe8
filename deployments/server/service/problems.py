"""Turns errors into problem details (RFC 9457): a sentence, and for each bad field its name, its value and what is possible."""

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from deployments.server.gate.runs import Refused
from gan_core.errors import DataError, GanError, PlanError, SchemaOutdated, StoreError, StoreUnreachable, TrainingError

MEDIA = "application/problem+json"
LATER = {"Retry-After": "5"}  # seconds
FIELD = re.compile(r"^([\w.]+)(?=: | is | \(got )")
AWAY = "The class's database does not answer now. Nothing was changed; ask again in a few seconds."


def problem(
    status: int, detail: str, errors: Sequence[Mapping[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """The answer. ASCII, since what was given may hold characters that nothing can be written with."""
    content = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, "errors": list(errors)}
    return Response(json.dumps(content), status, headers, MEDIA)


def answer_problems(app: FastAPI) -> None:
    """Let every refusal of this app be one."""

    @app.exception_handler(GanError)
    def _ours(request: Request, exc: GanError) -> Response:
        return of(exc)

    @app.exception_handler(Refused)
    def _inside(request: Request, exc: Refused) -> Response:
        return problem(exc.status, exc.detail, headers=LATER if exc.status == 503 else None)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, exc: RequestValidationError) -> Response:
        faults = [_fault(error) for error in exc.errors()]
        return problem(422, _sentence(faults), faults)

    @app.exception_handler(HTTPException)
    def _http(request: Request, exc: HTTPException) -> Response:
        texts = {400: "The body is no JSON that can be read.", 404: f"There is no {request.url.path}."}
        said = texts.get(exc.status_code, exc.detail)
        return problem(exc.status_code, said, headers=exc.headers)

    @app.exception_handler(Exception)
    def _unforeseen(request: Request, exc: Exception) -> Response:  # uvicorn's log has the traceback
        return problem(500, f"The class server has failed: {type(exc).__name__}. Its log says more.")


def of(exc: GanError) -> Response:
    """One of our errors as an answer."""
    match exc:
        case TrainingError():
            return problem(409, str(exc))
        case PlanError() | DataError():
            lines = str(exc).partition("\n  ")[2].split("\n  ") if "\n  " in str(exc) else [str(exc)]
            faults = [{"field": m[1] if (m := FIELD.match(line)) else "", "detail": line} for line in lines]
            return problem(422, _sentence(faults), faults)
        case StoreUnreachable():
            return problem(503, AWAY, headers=LATER)
        case SchemaOutdated():
            return problem(503, str(exc), headers=LATER)
        case StoreError() if isinstance(exc.__cause__, psycopg.DataError):
            return problem(422, "A value holds characters or numbers that PostgreSQL can't store.")
        case _:
            return problem(500, str(exc))


def _fault(error: dict) -> dict[str, str]:
    tags = ("body", "Submission", "Task", "Job", "WrappedJob")
    field = ".".join(str(part) for part in error["loc"] if part not in tags)
    given = "" if error["type"] in ("missing", "extra_forbidden") else f" (got {str(error.get('input'))[:100]!r})"
    return {"field": field, "detail": f"{field or 'the body'}: {error['msg'].removeprefix('Value error, ')}{given}"}


def _sentence(faults: list[dict[str, str]]) -> str:
    return "; ".join(fault["detail"].rstrip(".") for fault in faults) + "."
