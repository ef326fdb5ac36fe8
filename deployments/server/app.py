"""The class server: Prefect's own ASGI app behind one login for each person.

Open source Prefect has one shared password, and whoever holds it runs commands on everybody's machines. Here each person
has a login of their own. The instructor may do everything. Students may do what a worker and its shifts need, each call
checked (`gate_http`, `gate_socket`); all else is refused. Without a login there is health and the UI's static files.
Prometheus has a login of its own for `/metrics`, which is good for nothing else.

Whoever starts the process sees to this:

- One process, uvicorn with `lifespan="on"`, serving `class_server(create_app(), ...)`: background services start from
  Prefect's lifespan, and buckets and owners are kept in memory.
- `PREFECT_SERVER_API_AUTH_STRING` is `inner_secret`, random, known to nobody: only the gate gets through to Prefect. The
  UI shows its login form because of it; the instructor enters `instructor:SECRET` there.
- `PREFECT_UI_API_URL` is the address of `/api` as browsers see it. `PREFECT_SERVER_CSRF_PROTECTION_ENABLED` stays off,
  and `PREFECT_SERVER_API_BASE_PATH` unset.
- `ws_max_size` of uvicorn about 1 MB, since a frame is in memory before the gate sees it. `limit_concurrency` is above
  what a class needs (`serving.CONNECTIONS`), and finite: connections that say nothing cost memory, and nobody knows whose
  they are.
- TLS. Basic credentials are readable without it.

A student's shifts ask the class itself under `/classgan/student` (`deployments/server/door`).

Clients set `PREFECT_API_AUTH_STRING=login:secret` and leave `PREFECT_API_KEY` unset.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any

from deployments.server.door.app import StudentDoor
from deployments.server.gate.frames import StudentSocket
from deployments.server.gate.logins import (
    REFRESH,
    Bucket,
    Logins,
    NotReadyYet,
    Person,
    credential_of,
    split_credential,
    while_in,
    with_authorization,
)
from deployments.server.gate.requests import POLL, Answer, StudentApi
from deployments.server.gate.runs import Inner, Refused, Shifts
from deployments.server.gate.scrapes import METRICS, Scrapes
from deployments.server.gate.waiting import while_there
from deployments.server.service.app import service_app
from deployments.server.service.parameters import PREFIX, WHO
from deployments.server.service.problems import MEDIA, problem
from gan_core.store.door import PREFIX as DOOR

log = logging.getLogger("classgan.server")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

BODY_BYTES = 1_000_000  # of a student's request; a full batch of logs has a few hundred thousand
BODY_SECONDS = 30.0  # for it to arrive
LOGIN_SECONDS = 10.0  # for a websocket's first frame
IN_FLIGHT = 32  # HTTP requests of a student's at once
POLLS = 64  # of a student's held open beside them: two a machine, for one that came back is still there for a moment
AT_DOOR = 128  # the same, of shifts: four a machine, of which one waits for work
AT_SERVICE = 8  # the same, for one that is asked of the service: long polls look at the database each second
SOCKETS = 64  # of a student's: three a worker and two a running shift
FAILED_SECONDS = 1.0  # that a wrong secret waits for its answer
FAILED_WAITING = 64  # of those at once; more are answered at once, since waiting costs memory
PASSING = (425, 429)  # statuses for which a websocket may come again
OPEN_TO_ALL = ("/api/health", "/api/ready")
NOT_UI = ("/docs", "/redoc", "/openapi.json", "/classgan", METRICS)


def class_server(
    app: Any,
    *,
    instructor_hash: str,
    student_hashes: Callable[[], Mapping[str, str]],
    inner_secret: str,
    scrapes: Scrapes | None = None,
    refresh_seconds: float = REFRESH,
    body_bytes: int = BODY_BYTES,
    database_url: str = "",
    door: StudentDoor | None = None,
) -> "ClassServer":
    """Prefect's app behind the class's logins.

    Args:
        app: what Prefect's `create_app()` returns.
        instructor_hash: hex SHA-256 of the instructor's secret; the login is `instructor`.
        student_hashes: login → hex SHA-256 of the secret, of all who may come in. Called again and again in a thread, so
            it may block; if it raises, its last answer stays.
        inner_secret: the value of `PREFECT_SERVER_API_AUTH_STRING`.
        scrapes: what Prometheus reads; None: nothing.
        refresh_seconds: between two calls of `student_hashes`. Who is no longer in it is out, open websockets included.
        body_bytes: limit of a student's request, and of anybody's to the service.
        database_url: of the class, as the instructor, for the service (`deployments/server/service`); "" leaves it out.
        door: for students' shifts; None: they can't ask the class.
    """
    logins = Logins(instructor_hash, student_hashes, refresh_seconds)
    return ClassServer(app, logins, inner_secret, body_bytes, scrapes, database_url, door)


class ClassServer:
    """An ASGI app; see `class_server`."""

    def __init__(
        self,
        app: Any,
        logins: Logins,
        inner_secret: str,
        body_bytes: int,
        scrapes: Scrapes | None = None,
        database_url: str = "",
        door: StudentDoor | None = None,
    ) -> None:
        self._app: App = app
        self._logins, self._inner_secret, self._body_bytes = logins, inner_secret, body_bytes
        self._inner = Inner(app, inner_secret)
        self._shifts = Shifts(self._inner)
        self._students = StudentApi(self._inner, self._shifts, lambda: logins.student_names)
        self._service: App | None = service_app(database_url, self._inner) if database_url else None
        self._door = door
        self._faults = Bucket(rate=0.02, burst=20)  # that are written down
        self._failed_waiting = 0
        self._scrapes = scrapes

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)

    async def _live(self, scope: Any, receive: Receive, send: Send) -> None:
        self._logins.start()
        if self._door:
            self._door.start()
        try:
            await self._app(scope, receive, send)
        finally:
            if self._door:
                self._door.stop()
            await self._logins.stop()

    # HTTP

    async def _http(self, scope: Any, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if (path in OPEN_TO_ALL and method == "GET") or _is_ui(path, method):
            await self._app(with_authorization(scope, None), receive, send)
            return
        given = credential_of(scope["headers"])
        scrapes = self._scrapes if (path, method) == (METRICS, "GET") else None
        if scrapes and given and scrapes.admits(*given):
            await _reply(send, await scrapes.answer())
            return
        try:
            person = await self._logins.admit(*given) if given else None
        except NotReadyYet:
            await _reply(send, _refusal(path, 503, "The class server has just started.", (b"retry-after", b"2")))
            return
        refuse = partial(self._refuse_login, path, send, given)
        if person is None:
            await refuse()
        elif self._door is not None and path.startswith(f"{DOOR}/"):
            await while_in(person, send, partial(self._serve_shift, self._door.app, person, scope, receive), refuse)
        elif self._service is not None and path.startswith(f"{PREFIX}/"):
            await self._serve(self._service, person, scope, receive, send)
        elif person.is_instructor and scrapes:
            await _reply(send, await scrapes.answer())
        elif person.is_instructor:
            await self._app(with_authorization(scope, self._inner.authorization), receive, send)
        else:
            await while_in(person, send, partial(self._serve_student, person, scope, receive), refuse)

    async def _refuse_login(self, path: str, send: Send, given: tuple[str, str] | None) -> None:
        """Late, to slow down whoever tries many; yet nobody else waits for it, and few wait at a time."""
        why = ""
        if given is not None and self._failed_waiting < FAILED_WAITING:
            self._failed_waiting += 1
            try:
                await asyncio.sleep(FAILED_SECONDS)
                why = await self._door.why_out(*given) if self._door else ""
            finally:
                self._failed_waiting -= 1
        said = why or "Log in: PREFECT_API_AUTH_STRING=login:secret, as in your invite."
        await _reply(send, _refusal(path, 401, said))

    async def _serve_student(self, person: Person, scope: Any, receive: Receive, send: Send) -> None:
        is_poll = POLL.fullmatch(scope["path"]) is not None
        is_full = person.polls >= POLLS if is_poll else person.in_flight >= IN_FLIGHT
        if is_full or not person.requests.take():
            busy = {"detail": "These are more requests than a worker makes. Wait a little."}
            await _reply(send, Answer.json(429, busy, (b"retry-after", b"2")))
            return
        person.polls, person.in_flight = person.polls + is_poll, person.in_flight + (not is_poll)
        try:
            body = await self._read_body(scope, receive)
            answering = self._students.answer(person, scope["method"], scope["path"], scope["headers"], body)
            answer = await (while_there(receive, answering) if is_poll else answering)
        except Refused as refused:
            answer = Answer.json(refused.status, {"detail": refused.detail}, (b"connection", b"close"))
        finally:
            person.polls, person.in_flight = person.polls - is_poll, person.in_flight - (not is_poll)
        if answer is not None:
            await _reply(send, answer)

    async def _serve_shift(self, app: App, person: Person, scope: Any, receive: Receive, send: Send) -> None:
        """What a shift asks of the class. Bodies are as long as contributions; the door itself limits them."""
        if person.at_door >= AT_DOOR or not person.shifts.take():
            busy = {"detail": "These are more requests than machines at work make. Wait a little."}
            await _reply(send, Answer.json(429, busy, (b"retry-after", b"2"), (b"connection", b"close")))
            return
        person.at_door += 1
        try:
            await app({**with_authorization(scope, None), WHO: person.login}, receive, send)
        except Exception as fault:
            if self._faults.take():
                log.error("A request of %s's failed: %s", person.login, scope["path"][:200], exc_info=fault)
        finally:
            person.at_door -= 1

    async def _serve(self, service: App, person: Person, scope: Any, receive: Receive, send: Send) -> None:
        """What is asked of trainings, by anybody."""
        inside = {**with_authorization(scope, None), WHO: person.login}
        if not person.is_instructor and (person.in_flight >= AT_SERVICE or not person.requests.take()):
            slow = problem(429, "Too many requests. Wait 2 seconds, then try again.", headers={"Retry-After": "2"})
            await slow(inside, receive, send)
            return
        person.in_flight += 1
        try:
            body = await self._read_body(scope, receive)
        except Refused as refused:
            await problem(refused.status, refused.detail, headers={"Connection": "close"})(inside, receive, send)
        else:
            await service(inside, _replayed(body, receive), send)
        finally:
            person.in_flight -= 1

    async def _read_body(self, scope: Any, receive: Receive) -> bytes:
        """The body, if it is small enough and comes in time; of a large one nothing is kept."""
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        parts, size = [], int(announced) if announced.isdigit() else 0
        if size <= self._body_bytes:
            size = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(BODY_SECONDS):
                    while size <= self._body_bytes:
                        message = await receive()
                        if message["type"] == "http.disconnect":
                            raise Refused(400, "The connection ended in the middle of the body.")
                        parts.append(message.get("body", b""))
                        size += len(parts[-1])
                        if not message.get("more_body") and size <= self._body_bytes:
                            return b"".join(parts)
        if size <= self._body_bytes:
            raise Refused(408, f"The body did not come within {BODY_SECONDS:.0f} s.")
        raise Refused(413, f"The body has more than {self._body_bytes:,} bytes.")

    # Websockets

    async def _socket(self, scope: Any, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith("/api/"):
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        session = _Session(self, scope["path"], receive)
        inside = with_authorization(scope, self._inner.authorization)
        inner = asyncio.ensure_future(self._app(inside, session.receive, send))
        watch = asyncio.ensure_future(session.until_over())
        try:
            await asyncio.wait({inner, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not inner.done():
                inner.cancel()
                await asyncio.wait({inner}, timeout=5)
                why = watch.result()
                code = 1011 if why.status in PASSING else 1008  # after which a worker tries no more
                with suppress(Exception):  # it may have ended meanwhile, or never have been accepted
                    await send({"type": "websocket.close", "code": code, "reason": why.detail})
            if inner.done() and not inner.cancelled() and (fault := inner.exception()):
                log.info("A websocket to %s ended: %r", scope["path"], fault)
        finally:
            inner.cancel()
            watch.cancel()
            session.leave()


class _Session:
    """One websocket: its first frame must be a login, the others are that person's."""

    def __init__(self, server: ClassServer, path: str, receive: Receive) -> None:
        self._server, self._path, self._receive = server, path, receive
        self._person: Person | None = None
        self._student: StudentSocket | None = None
        self._came_in, self._over = asyncio.Event(), asyncio.Event()
        self._why: Refused | None = None

    async def until_over(self) -> Refused:
        """Returns the reason once the socket has to be closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._came_in.wait(), LOGIN_SECONDS)
        if self._person is None:
            return self._why or Refused(401, "Nobody logged in.")
        ends = [asyncio.ensure_future(event.wait()) for event in (self._over, self._person.out)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        return self._why or Refused(401, "This login is no longer valid.")

    def leave(self) -> None:
        if self._person is not None:
            self._person.sockets -= 1

    async def receive(self) -> Message:
        """The next message for Prefect. Once the socket is to be closed, it never comes."""
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return message
            try:
                if self._person is None:
                    return await self._log_in(message)
                if self._student is None:
                    return message
                if not isinstance(given := message.get("text"), str):
                    raise Refused(400, "The frame is not text.")
                if (written := await self._student.frame(given)) is not None:
                    return {"type": "websocket.receive", "text": written}
            except Refused as refused:
                if refused.status == 503:
                    continue  # what it needed to know can't be asked now: this frame is lost, the next may be better
                await self._end(refused)

    async def _log_in(self, message: Message) -> Message:
        server = self._server
        try:
            frame = json.loads(message.get("text") or "")
            token = frame.get("token") if frame.get("type") == "auth" else None
            person = await server._logins.admit(*split_credential(token)) if isinstance(token, str) else None
        except (ValueError, RecursionError, AttributeError) as exc:
            raise Refused(401, "The first frame is not a login.") from exc
        except NotReadyYet as exc:
            raise Refused(425, "The class server has just started.") from exc
        if person is None:
            raise Refused(401, "The login is wrong.")
        if not person.is_instructor:
            if person.sockets >= SOCKETS:
                raise Refused(429, f"You have {SOCKETS} websockets open, as many as a student may.")
            self._student = StudentSocket(person, self._path, server._shifts, lambda: server._logins.student_names)
        person.sockets += 1
        self._person = person
        self._came_in.set()
        return {"type": "websocket.receive", "text": json.dumps({"type": "auth", "token": server._inner_secret})}

    async def _end(self, why: Refused) -> None:
        self._why = why
        self._over.set()
        self._came_in.set()
        await asyncio.Event().wait()  # until this socket's task is cancelled


def _refusal(path: str, status: int, detail: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Why not, in the form that whoever asks for this path expects."""
    if not path.startswith(PREFIX):
        return Answer.json(status, {"detail": detail}, *headers)
    said = problem(status, detail)
    return Answer(status, bytes(said.body), ((b"content-type", MEDIA.encode()), *headers))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` for whoever wants a body that was read already."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _is_ui(path: str, method: str) -> bool:
    """Static files, the page, and `/ui-settings`: what a browser needs before it can show the login form."""
    is_api = path == "/api" or path.startswith("/api/")
    return method in ("GET", "HEAD") and not is_api and not path.startswith(NOT_UI)


async def _reply(send: Send, answer: Answer) -> None:
    given = dict(answer.headers)
    headers = {b"content-type": b"application/json", b"content-length": str(len(answer.content)).encode(), **given}
    if answer.status == 204:
        headers = {name: value for name, value in headers.items() if not name.startswith(b"content-")}
    await send({"type": "http.response.start", "status": answer.status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": b"" if answer.status == 204 else answer.content})
