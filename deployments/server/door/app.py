"""What students' machines ask of the class, over HTTPS: see `gan_core.store.door` for the other side.

    POST /classgan/student/calls/NAME                 one of the functions of `gan_core.store.student`, with its arguments
    POST /classgan/student/wait                       held until there may be work
    POST /classgan/student/trainings/ID/weights/N     the hash of an iteration's weights
    GET  /classgan/student/weights/SHA256             their bytes, or a range of them
    GET  /classgan/student/uploads/LEASE?boot=        how many bytes of a contribution are here
    PUT  /classgan/student/uploads/LEASE?boot=        more of them
    POST /classgan/student/submissions/LEASE          hands it in

The gate has let the student in and says in `WHO` who it is. Whatever they ask runs in PostgreSQL under their name and with
a student's rights.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from deployments.server.door.database import Database
from deployments.server.door.heartbeats import Heartbeats
from deployments.server.door.notices import Notices
from deployments.server.door.uploads import Uploads
from deployments.server.door.weights import WeightsCache
from deployments.server.gate.runs import Refused
from deployments.server.service.parameters import WHO
from gan_core.errors import StoreError, StoreUnreachable
from gan_core.store import student
from gan_core.store.door import LONGEST_HOLD, PREFIX, Sent, Weights
from gan_core.store.logins import hash_of
from gan_core.units import Submission

CALL_SECONDS = 30.0  # for a question to arrive
PIECE_SECONDS = 60.0  # for the next piece of weights to be taken
DOWNLOADS = 40  # of one student at once: one a machine
PASSING = ("57014", "55P03", "25P03")  # of PostgreSQL's codes: it took too long, or a lock did
CALL_BYTES = 1 << 16  # of a question; a machine's hardware is the longest thing in one
RANGE = re.compile(r"bytes (\d{1,12})-(\d{1,12})/(\d{1,12})")
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}  # these bytes never change under their hash

T = TypeVar("T", bound=BaseModel)


class _Wait(BaseModel):
    model_config = ConfigDict(extra="forbid")

    heard: int
    seconds: float = Field(ge=0, le=LONGEST_HOLD)


class StudentDoor:
    """Start it in the event loop, serve `app`, stop it.

    Args:
        database_url: as the instructor.
        folder: for weights and contributions on their way; nothing in it outlives the process.
    """

    def __init__(self, database_url: str, folder: Path) -> None:
        self._database = Database(database_url)
        self._heartbeats = Heartbeats(self._database)
        self._notices = Notices(database_url)
        self._weights = WeightsCache(self._database, folder / "weights")
        self._uploads = Uploads(self._database, folder / "uploads")
        self._downloads: Counter[str] = Counter()
        self.app = Starlette(
            routes=[
                Route(f"{PREFIX}/calls/{{name}}", self._call, methods=["POST"]),
                Route(f"{PREFIX}/wait", self._wait, methods=["POST"]),
                Route(f"{PREFIX}/trainings/{{training}}/weights/{{iteration}}", self._find, methods=["POST"]),
                Route(f"{PREFIX}/weights/{{sha256}}", self._send_weights, methods=["GET"]),
                Route(f"{PREFIX}/uploads/{{lease}}", self._upload_size, methods=["GET"]),
                Route(f"{PREFIX}/uploads/{{lease}}", self._take_upload, methods=["PUT"]),
                Route(f"{PREFIX}/submissions/{{lease}}", self._hand_in, methods=["POST"]),
            ],
            exception_handlers={
                Refused: _refused,
                StoreError: _store,
                ValidationError: _invalid,
                ClientDisconnect: _gone,
                OSError: _disk,
            },
        )

    def start(self) -> None:
        self._weights.start()
        self._uploads.start()
        self._database.open()
        self._notices.start()

    def stop(self) -> None:
        self._notices.stop()
        self._database.close()

    async def why_out(self, login: str, secret: str) -> str:
        """What somebody is told who has a right secret and is suspended; "" for everybody else."""
        why = await self._database.why_out(login, hash_of(secret))
        return (
            f"Your login is suspended: {why.rstrip('.')}. What you earned stays; talk to your instructor."
            if why
            else ""
        )

    async def _call(self, request: Request) -> Response:
        name = request.path_params["name"]
        if (call := student.CALLS.get(name)) is None:
            raise Refused(
                404, f"A student's machine can't ask for {name[:50]!r}: it may have another version of classgan."
            )
        given = await _body(request, call.arguments)
        arguments = {field: getattr(given, field) for field in call.arguments.model_fields}
        if name == "heartbeat":
            return _json(call.answer, await self._heartbeats.take(_login(request), **arguments))
        answer = await self._database.ask(_login(request), lambda c: call.work(c, **arguments))
        return _json(call.answer, answer)

    async def _wait(self, request: Request) -> Response:
        wanted = await _body(request, _Wait)
        return _json(TypeAdapter(int), await self._notices.after(wanted.heard, wanted.seconds))

    async def _find(self, request: Request) -> Response:
        training, iteration = _number(request, "training"), _number(request, "iteration", 2**31)
        return _json(_FOUND, await self._weights.find(_login(request), training, iteration))

    async def _send_weights(self, request: Request) -> Response:
        path = self._weights.path(sha256 := request.path_params["sha256"])
        if path is None:
            raise Refused(409, "These weights are no longer here. Ask for the iteration's again.")
        return _WeightsFile(path, {**FOREVER, "etag": f'"{sha256}"'}, self._downloads, _login(request))

    async def _upload_size(self, request: Request) -> Response:
        size = await self._uploads.size(_login(request), _number(request, "lease"), _boot(request))
        return _json(TypeAdapter(int | None), size)

    async def _take_upload(self, request: Request) -> Response:
        said = RANGE.fullmatch(request.headers.get("content-range", ""))
        if said is None:
            raise Refused(422, "Content-Range must say which bytes come: bytes FIRST-LAST/ALL.")
        first, _, total = (int(number) for number in said.groups())
        lease, boot = _number(request, "lease"), _boot(request)
        await self._uploads.take(_login(request), lease, boot, first, total, request.stream())
        return Response(status_code=204)

    async def _hand_in(self, request: Request) -> Response:
        sent = await _body(request, Sent)
        answer = await self._uploads.hand_in(_login(request), _number(request, "lease"), sent)
        return _json(TypeAdapter(Submission), answer)


class _WeightsFile(FileResponse):
    """Weights on their way to one student's machine, if there aren't too many of those."""

    chunk_size = 1 << 20  # read in a thread; with a quarter, a class of 500 got its weights in twice the time

    def __init__(self, path: Path, headers: Mapping[str, str], downloads: Counter[str], login: str) -> None:
        if downloads[login] >= DOWNLOADS:
            raise Refused(429, f"You fetch weights on {DOWNLOADS} machines already. Wait for one of them.")
        super().__init__(path, headers=headers, media_type="application/octet-stream")
        self._downloads, self._login = downloads, login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(PIECE_SECONDS):
                await send(message)

        self._downloads[self._login] += 1
        try:
            with suppress(TimeoutError):  # whoever stops reading is left alone
                await super().__call__(scope, receive, send_in_time)
        finally:
            self._downloads[self._login] -= 1


_FOUND = TypeAdapter(Weights | None)


def _login(request: Request) -> str:
    return request.scope[WHO]


def _number(request: Request, name: str, limit: int = 2**63) -> int:
    """A number that PostgreSQL has room for."""
    given = request.path_params[name]
    if not re.fullmatch("[0-9]{1,19}", given) or int(given) >= limit:
        raise Refused(422, f"{name} is {given[:30]}: there is none with such a number.")
    return int(given)


def _boot(request: Request) -> UUID:
    try:
        return UUID(request.query_params.get("boot", ""))
    except ValueError as exc:
        raise Refused(422, "boot must be the UUID that this start of the worker has registered with.") from exc


async def _body(request: Request, model: type[T]) -> T:
    whole = bytearray()
    try:
        async with asyncio.timeout(CALL_SECONDS):
            async for piece in request.stream():
                whole += piece
                if len(whole) > CALL_BYTES:
                    raise Refused(413, f"The question has more than {CALL_BYTES:,} bytes.")
    except TimeoutError as exc:
        raise Refused(408, f"The question did not come within {CALL_SECONDS:.0f} s.") from exc
    return model.model_validate_json(bytes(whole))


def _json(adapter: TypeAdapter[Any], value: object) -> Response:
    return Response(adapter.dump_json(value), media_type="application/json")


def _said(status: int, detail: str) -> Response:
    headers = {"retry-after": "2"} if status in (429, 503) else {}
    if status in (400, 408, 413):
        headers["connection"] = "close"  # what is left of the body is nobody's
    return JSONResponse({"detail": detail}, status, headers)


def _refused(request: Request, exc: Any) -> Response:
    return _said(exc.status, exc.detail)


def _store(request: Request, exc: Any) -> Response:
    if isinstance(exc, StoreUnreachable):
        return _said(503, "The class's database doesn't answer now. Nothing was changed.")
    cause = exc.__cause__
    if not isinstance(cause, psycopg.Error):
        return _said(403, str(exc))
    if cause.sqlstate in PASSING:
        return _said(503, "The class's database is busy. Nothing was changed.")
    return _said(403, cause.diag.message_primary or str(exc))


def _invalid(request: Request, exc: Any) -> Response:
    faults = "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'the body'}: {fault['msg']}" for fault in exc.errors()[:5]
    )
    return _said(422, faults[:500])


def _gone(request: Request, exc: Any) -> Response:
    return Response(status_code=400)  # nobody reads it


def _disk(request: Request, exc: Any) -> Response:
    return _said(
        507,
        f"The class server can't keep what is on its way: {exc.strerror or type(exc).__name__}. Tell your instructor.",
    )
