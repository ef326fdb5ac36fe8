"""What a student may ask of Prefect's API over HTTP: the calls that a worker and its shifts make, and nothing else.

No request of a student's is passed on. Each allowed one is checked and written anew, with the fields named here and
values of known kinds; the answer is Prefect's. What isn't in `ALLOWED` is refused.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx

from deployments.prefect_settings import HOLD
from deployments.server.gate.logins import Person
from deployments.server.gate.runs import OPEN, OPEN_RUNS, SIGNED, Inner, Refused, Shifts
from deployments.server.gate.values import at, harmless, is_uuid, machine_name, run_name, seconds, text
from deployments.server.gate.waiting import Waiting
from tasks.background.shifts import POOL

SHARED = 5.0  # seconds that an answer is good for which is the same for all
LOG_RECORDS = 500  # in one request; Prefect's own client sends what came in two seconds
LOG_CHARACTERS = 4_000  # of one message; longer ones are cut
ARTIFACT_CHARACTERS = 10_000
LABELS = ("prefect.worker.name", "prefect.worker.type", "prefect.work-pool.name", "prefect.work-pool.id")
# A student's run goes through these states; names that tell more than the type are passed on.
STATES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CRASHED", "CANCELLED")
STATE_NAMES = ("Submitting", "NotReady", "TimedOut")
PASSED_HEADERS = ("x-prefect-api-version", "user-agent")  # Prefect looks at both to serve older clients


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a student's."""

    person: Person
    names: Mapping[str, str]  # what the path says
    body: dict[str, Any]  # a list arrives as {"": list}
    headers: dict[str, str]
    hold: int  # seconds for which the answer may wait

    @property
    def id(self) -> UUID:
        return UUID(self.names["id"])

    @property
    def login(self) -> str:
        return self.person.login


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @classmethod
    def json(cls, status: int, content: Any, *headers: tuple[bytes, bytes]) -> "Answer":
        return cls(status, json.dumps(content).encode(), headers)

    @classmethod
    def of(cls, response: httpx.Response) -> "Answer":
        """Prefect's, as students get it."""
        kind = response.headers.get("content-type", "application/json").encode()
        again = ((b"retry-after", b"1"),) if response.status_code in (429, 503) else ()  # else clients wait ever longer
        return cls(response.status_code, response.content, ((b"content-type", kind), *again))


class StudentApi:
    """Prefect's API as students see it.

    Args:
        inner: Prefect itself.
        shifts: what is known of shift runs.
        students: the logins of all students, for telling their machines' names apart.
    """

    def __init__(self, inner: Inner, shifts: Shifts, students: Callable[[], list[str]]) -> None:
        self._inner, self._shifts, self._students = inner, shifts, students
        self._waiting = Waiting(inner)
        self._shared: dict[str, tuple[float, asyncio.Task[httpx.Response]]] = {}

    async def answer(
        self, person: Person, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> Answer:
        """Do what the student asks, or refuse in a sentence."""
        try:
            handler, names = _find(method, path)
            known = {name.decode("latin-1"): value.decode("latin-1")[:200] for name, value in headers}
            passed = {name: known[name] for name in PASSED_HEADERS if name in known}
            hold = int(known[HOLD]) if known.get(HOLD, "").isdecimal() else 0
            return await handler(self, Ask(person, names, _parse(body), passed, hold))
        except Refused as refused:
            if POLL.fullmatch(path) and refused.status not in (429, 503):
                return Answer.json(200, [])  # any other refusal of a poll would end the worker
            retry = ((b"retry-after", b"2"),) if refused.status in (429, 503) else ()
            return Answer.json(refused.status, {"detail": refused.detail}, *retry)

    async def _pass(self, ask: Ask, method: str, path: str, body: Any = None) -> Answer:
        return Answer.of(await self._inner.call(method, path, body, ask.headers))

    async def _share(self, method: str, path: str, body: Any = None) -> Answer:
        """What is the same for all: however many ask, Prefect is asked once in SHARED seconds."""
        since, asking = self._shared.get(path, (float("-inf"), None))
        if asking is None or time.monotonic() - since > SHARED or (asking.done() and not _is_good(asking)):
            asking = asyncio.create_task(self._inner.call(method, path, body))
            self._shared[path] = time.monotonic(), asking
        return Answer.of(await asyncio.shield(asking))  # who goes away ends it for nobody else

    # What belongs to nobody

    async def csrf_token(self, ask: Ask) -> Answer:
        return Answer.json(422, {"detail": "CSRF protection is disabled."})  # Prefect's words: clients look for them

    async def version(self, ask: Ask) -> Answer:
        return await self._share("GET", "/admin/version")

    async def storage(self, ask: Ask) -> Answer:
        return Answer.json(200, {"default_result_storage_block_id": None})  # shifts store no results

    async def pool(self, ask: Ask) -> Answer:
        return await self._share("GET", f"/work_pools/{POOL}")

    async def queues(self, ask: Ask) -> Answer:
        return await self._share("POST", f"/work_pools/{POOL}/queues/filter", {})

    async def queue(self, ask: Ask) -> Answer:
        queue = await self._inner.get(f"/work_queues/{ask.id}")
        if queue is None or queue.get("work_pool_name") != POOL:
            raise Refused(404, "No such queue.")
        return Answer.json(200, queue)

    async def deployment(self, ask: Ask) -> Answer:
        if str(ask.id) not in await self._shifts.deployments_of(ask.login):
            raise Refused(404, "No such deployment.")
        return await self._share("GET", f"/deployments/{ask.id}")

    async def flow(self, ask: Ask) -> Answer:
        if str(ask.id) != (await self._shifts.deployment())["flow_id"]:
            raise Refused(404, "No such flow.")
        return await self._share("GET", f"/flows/{ask.id}")

    # The worker

    async def heartbeat(self, ask: Ask) -> Answer:
        name = machine_name(ask.person, ask.body.get("name"), self._students())
        beat = {"name": name, "heartbeat_interval_seconds": seconds(ask.body.get("heartbeat_interval_seconds"))}
        return await self._pass(ask, "POST", f"/work_pools/{POOL}/workers/heartbeat", beat)

    async def poll(self, ask: Ask) -> Answer:
        """At most one run. A worker of ours says that it waits for one; others are told how it is now."""
        return Answer.json(200, await self._waiting.shift_for(ask.login, ask.hold))

    # Runs

    async def read_run(self, ask: Ask) -> Answer:
        await self._shifts.require_own(ask.login, ask.id)
        return await self._pass(ask, "GET", f"/flow_runs/{ask.id}")

    async def find_runs(self, ask: Ask) -> Answer:
        asked = ask.body.get("flow_runs")
        asked = asked if isinstance(asked, dict) else {}
        ids = [UUID(text) for text in _strings(at(asked, "id", "any_"))[:50] if is_uuid(text)]
        if not (own := await self._shifts.owned(ask.login, ids)):
            return Answer.json(200, [])
        state = asked.get("state") if isinstance(asked.get("state"), dict) else None
        wanted = {"id": {"any_": [str(run) for run in own]}, "state": state}
        return await self._pass(ask, "POST", "/flow_runs/filter", {"flow_runs": wanted})

    async def change_run(self, ask: Ask) -> Answer:
        """Its name. The number of a process on a student's machine, and the like, tell nobody anything: not passed on."""
        await self._shifts.require_own(ask.login, ask.id)
        if "name" not in ask.body:
            return Answer(204)
        return await self._pass(ask, "PATCH", f"/flow_runs/{ask.id}", {"name": run_name(ask.login, ask.body["name"])})

    async def label_run(self, ask: Ask) -> Answer:
        await self._shifts.require_own(ask.login, ask.id)
        labels = {name: text(ask.body[name], 100) for name in LABELS if name in ask.body}
        return await self._pass(ask, "PATCH", f"/flow_runs/{ask.id}/labels", labels)

    async def set_state(self, ask: Ask) -> Answer:
        """`force` and `data` are dropped, and of the details all but what makes a repeated request harmless."""
        asked = ask.body.get("state")
        if not isinstance(asked, dict) or asked.get("type") not in STATES:
            raise Refused(403, f"A student's run may only become one of {', '.join(STATES)}.")
        run = await self._shifts.run(ask.id)
        state: dict[str, Any] = {"type": asked["type"], "message": text(asked.get("message") or "", 1_000)}
        if asked.get("name") in STATE_NAMES:
            state["name"] = asked["name"]
        if is_uuid(transition := at(asked, "state_details", "transition_id")):
            state["state_details"] = {"transition_id": transition}
        if state["type"] in SIGNED:
            state["message"] = f"Taken by {ask.login}."
        if state["type"] == "PENDING" and run["state_type"] == "SCHEDULED":
            if await self._shifts.is_of_pods(run):
                return _abort("This shift is for a pod: the cluster's worker takes it.")
            return await self._take(ask, state)
        if await self._shifts.owner(run) != ask.login:
            if state["type"] == "PENDING":
                return _abort("Somebody else has taken this run.")  # two workers saw it: that is ordinary
            raise Refused(403, "This run isn't yours.")
        if run["state_type"] == "SCHEDULED":
            return _abort("The run is scheduled anew. Take it first.")
        answer = await self._pass(ask, "POST", f"/flow_runs/{ask.id}/set_state", {"state": state})
        if answer.status in (200, 201) and at(json.loads(answer.content), "state", "type") not in OPEN:
            self._shifts.ended(ask.id)
        return answer

    async def _take(self, ask: Ask, state: dict[str, Any]) -> Answer:
        # By this very name: then Prefect refuses the second of two who saw the run as scheduled.
        state["name"] = "Pending"
        async with self._shifts.claiming(ask.login):
            has_many = len(await self._shifts.open_runs(ask.login)) >= OPEN_RUNS
            if has_many and len(await self._shifts.open_runs(ask.login, now=True)) >= OPEN_RUNS:
                return _abort(f"You have {OPEN_RUNS} open runs, as many as a student may. End one first.")
            if not ask.person.claims.take():
                return _abort("You took many runs in a short time. Wait a little.")
            answer = await self._pass(ask, "POST", f"/flow_runs/{ask.id}/set_state", {"state": state})
            if answer.status in (200, 201) and json.loads(answer.content)["status"] == "ACCEPT":
                self._shifts.took(ask.login, ask.id)
        return answer

    # What a run leaves behind

    async def logs(self, ask: Ask) -> Answer:
        records = [record for record in ask.body.get("", []) if isinstance(record, dict)][:LOG_RECORDS]
        mentioned = {record["flow_run_id"] for record in records if is_uuid(record.get("flow_run_id"))}
        if len(mentioned) > OPEN_RUNS:  # each of them is looked up
            raise Refused(
                403, f"These log lines name more than {OPEN_RUNS} runs, the most that a student may have open."
            )
        own = {str(run) for run in await self._shifts.owned(ask.login, [UUID(run) for run in mentioned])}
        kept = [
            {
                "name": text(record.get("name", ""), 200),
                "level": record["level"] if type(record.get("level")) is int and 0 <= record["level"] <= 100 else 20,
                "message": text(record.get("message", ""), LOG_CHARACTERS),
                "timestamp": text(record.get("timestamp", ""), 50),
                "flow_run_id": str(UUID(record["flow_run_id"])),
            }
            for record in records
            if is_uuid(record.get("flow_run_id")) and str(UUID(record["flow_run_id"])) in own
        ]
        if records and not kept:
            raise Refused(403, "None of these log lines belongs to a run of yours.")
        self._require_space(ask.person, sum(len(str(record["message"])) + 200 for record in kept))
        return await self._pass(ask, "POST", "/logs/", kept)

    async def create_artifact(self, ask: Ask) -> Answer:
        if not is_uuid(run := ask.body.get("flow_run_id")):
            raise Refused(403, "A student's artifact must belong to one of their runs.")
        await self._shifts.require_own(ask.login, UUID(run))
        key = ask.body.get("key")
        if not isinstance(key, str) or not re.fullmatch(r"shift(-[a-z0-9-]{1,40})?", key):
            raise Refused(403, "A student's artifact must be called `shift`, or by a name that begins with `shift-`.")
        if ask.body.get("type") != "markdown":
            raise Refused(403, "A student's artifact must be markdown.")
        artifact = {"key": key, "type": "markdown", "flow_run_id": str(UUID(run)), **self._artifact_text(ask)}
        return await self._pass(ask, "POST", "/artifacts/", artifact)

    async def change_artifact(self, ask: Ask) -> Answer:
        artifact = await self._inner.get(f"/artifacts/{ask.id}")
        if artifact is None or not artifact["flow_run_id"]:
            raise Refused(404, "No such artifact.")
        await self._shifts.require_own(ask.login, UUID(artifact["flow_run_id"]))
        return await self._pass(ask, "PATCH", f"/artifacts/{ask.id}", self._artifact_text(ask))

    def _artifact_text(self, ask: Ask) -> dict[str, str]:
        found = {name: ask.body[name] for name in ("data", "description") if isinstance(ask.body.get(name), str)}
        if (size := sum(map(len, found.values()))) > ARTIFACT_CHARACTERS:
            raise Refused(413, f"The artifact has {size:,} characters, and {ARTIFACT_CHARACTERS:,} are allowed.")
        self._require_space(ask.person, size + 200)
        return {name: harmless(text) for name, text in found.items()}

    def _require_space(self, person: Person, size: int) -> None:
        if not person.written.take(size):
            raise Refused(429, "You have written too much in a short time. Wait a little.")


Handler = Callable[[StudentApi, Ask], Awaitable[Answer]]
ID = r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
ALLOWED: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/csrf-token", StudentApi.csrf_token),
    ("GET", "/admin/version", StudentApi.version),
    ("GET", "/admin/storage", StudentApi.storage),
    ("GET", f"/work_pools/{POOL}", StudentApi.pool),
    ("POST", f"/work_pools/{POOL}/queues/filter", StudentApi.queues),
    ("POST", f"/work_pools/{POOL}/get_scheduled_flow_runs", StudentApi.poll),
    ("POST", f"/work_pools/{POOL}/workers/heartbeat", StudentApi.heartbeat),
    ("GET", f"/work_queues/{ID}", StudentApi.queue),
    ("GET", f"/deployments/{ID}", StudentApi.deployment),
    ("GET", f"/flows/{ID}", StudentApi.flow),
    ("POST", "/flow_runs/filter", StudentApi.find_runs),
    ("GET", f"/flow_runs/{ID}", StudentApi.read_run),
    ("PATCH", f"/flow_runs/{ID}", StudentApi.change_run),
    ("PATCH", f"/flow_runs/{ID}/labels", StudentApi.label_run),
    ("POST", f"/flow_runs/{ID}/set_state", StudentApi.set_state),
    ("POST", "/logs/", StudentApi.logs),
    ("POST", "/artifacts/", StudentApi.create_artifact),
    ("PATCH", f"/artifacts/{ID}", StudentApi.change_artifact),
)
POLL = re.compile("/api/work_pools/[^/]+/get_scheduled_flow_runs")
_ROUTES = [(method, re.compile(f"/api{path}"), handler) for method, path, handler in ALLOWED]


def _is_good(asking: "asyncio.Task[httpx.Response]") -> bool:
    return not asking.cancelled() and asking.exception() is None and asking.result().status_code == 200


def _find(method: str, path: str) -> tuple[Handler, Mapping[str, str]]:
    for allowed, pattern, handler in _ROUTES:
        if method == allowed and (match := pattern.fullmatch(path)):
            return handler, match.groupdict()
    raise Refused(403, "Students may not do this.")


def _parse(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError) as exc:
        raise Refused(400, "The body is not JSON.") from exc
    if isinstance(found, list):
        return {"": found}
    if not isinstance(found, dict) or "" in found:
        raise Refused(400, "The body is neither an object nor a list.")
    return found


def _abort(reason: str) -> Answer:
    """Prefect's own way to say no to a change of state: the worker goes on to the next run."""
    return Answer.json(200, {"state": None, "status": "ABORT", "details": {"type": "abort_details", "reason": reason}})


def _strings(found: Any) -> list[str]:
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
