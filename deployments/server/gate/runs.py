"""What the class server knows of shift runs: which are shifts, and whose they are. Asked of Prefect itself, never of students.

Whose run it is stands in the run's own history. When a student takes a scheduled run, the gate writes the login into the
message of the Pending state, in the same request: taking and noting are one transaction, and of two students one wins.
Students can't write that message, since every Pending state of theirs is written anew. So it survives a restart, needs
no table, and the instructor reads it in the UI. The Running state says the same, so that whoever looks at a run's state knows
whose it is.

Shifts in a Kubernetes cluster are runs of a second deployment. Its own worker takes them, with the instructor's login, and
they belong to the login that the pods come in with, CLUSTER_LOGIN.
"""

import asyncio
import base64
import random
import re
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar
from uuid import UUID

import httpx

from gan_core.store.logins import CLUSTER_LOGIN
from tasks.background.shifts import CLUSTER_SHIFT, SHIFT

OPEN_RUNS = 16  # a student may have at once: two machines of eight devices
REMEMBERED = 20_000  # runs whose owner is kept in memory
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds, about, before a call is repeated
OPEN = ("PENDING", "RUNNING", "CANCELLING")
BEING_WORKED = {"type": {"any_": list(OPEN)}}
SIGNED = ("PENDING", "RUNNING")  # states whose message the gate writes: it says whose the run is
TAKEN = re.compile(r"Taken by (\S+)\.")
LOOK = 30.0  # seconds between two looks at all open runs: in between the gate knows what passes it, but not what the instructor ends
AGAIN = 1.0  # seconds between two looks, however many ask how it is now
PAGE = 200  # runs that Prefect tells at once, however it is set up

T = TypeVar("T")


class Refused(Exception):
    """A student asked for something that isn't theirs to ask; carries the HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Inner:
    """Prefect's API as the gate itself calls it, without a network between them."""

    def __init__(self, app: Any, inner_secret: str) -> None:
        self.authorization = f"Basic {base64.b64encode(inner_secret.encode()).decode()}"
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False),
            base_url="http://class-server/api",
            headers={"authorization": self.authorization, "accept-encoding": "identity"},
        )

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Prefect's answer. While its database is busy it says 503 and has done nothing, so it is asked again a little later."""
        for pause in PAUSES:
            response = await self._client.request(method, path, json=body, headers=headers)
            if response.status_code != 503:
                break
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        return response

    async def get(self, path: str) -> Any:
        """What is there, or None."""
        response = await self.call("GET", path)
        if response.status_code in (404, 422):
            return None
        if response.status_code != 200:
            raise Refused(503, f"Prefect answered {response.status_code}. Ask again.")
        return response.json()


class Asked(Generic[T]):
    """A question that many have in the same moment, as all machines after a restart: it is asked once for all of them."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[T] | None = None

    async def answer(self) -> T:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())  # it may be nobody's
        return await asyncio.shield(self._asking)  # who goes away ends it for nobody else


class Shifts:
    """The runs that students work on: of the one deployment, and of the one for pods if the class has it."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._owners: OrderedDict[UUID, str] = OrderedDict()
        self._open: dict[UUID, str] = {}  # runs that are taken and haven't ended
        self._changed: dict[UUID, str | None] = {}  # while all of them are looked at: taken by whom, or ended
        self._looked_at_runs = float("-inf")
        self._runs = Asked(self._look_at_runs)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._deployment: dict[str, Any] | None = None
        self._of_pods: dict[str, Any] | None = None
        self._looked = float("-inf")
        self._deployments = Asked(self._look_at_deployments)

    async def deployment(self) -> dict[str, Any]:
        """The shift deployment, looked up again every ten seconds: it may be made anew."""
        if self._deployment is None or time.monotonic() - self._looked > 10:
            await self._deployments.answer()
        if self._deployment is None:
            raise Refused(503, f"There is no deployment {SHIFT} yet. Ask again later.")
        return self._deployment

    async def _look_at_deployments(self) -> None:
        self._deployment = await self._inner.get(f"/deployments/name/{SHIFT}")
        self._of_pods = await self._inner.get(f"/deployments/name/{CLUSTER_SHIFT}")
        self._looked = time.monotonic()

    async def deployments_of(self, login: str) -> list[str]:
        """Ids of the deployments whose runs may be this student's."""
        ids = [(await self.deployment())["id"]]
        if self._of_pods is not None and login == CLUSTER_LOGIN:
            ids.append(self._of_pods["id"])
        return ids

    async def is_of_pods(self, run: dict[str, Any]) -> bool:
        """Whether a pod works this run, so that no student's machine may take it."""
        await self.deployment()
        return self._of_pods is not None and run["deployment_id"] == self._of_pods["id"]

    async def run(self, run_id: UUID) -> dict[str, Any]:
        """A shift run as Prefect has it. Raises Refused if there is none, or if it is a run of something else."""
        run = await self._inner.get(f"/flow_runs/{run_id}")
        if run is not None and run["deployment_id"] not in await self.deployments_of(CLUSTER_LOGIN):
            self._looked = float("-inf")  # its deployment may be younger than the last look
        if run is None or run["deployment_id"] not in await self.deployments_of(CLUSTER_LOGIN):
            raise Refused(404, "No such shift.")
        return run

    async def owner(self, run: dict[str, Any]) -> str | None:
        """Who has taken this run, given as Prefect has it; None if nobody has."""
        run_id, state = UUID(run["id"]), run["state"] or {}
        if run_id not in self._owners:
            signed = (state["message"] or "") if state.get("type") in SIGNED else ""
            if await self.is_of_pods(run):
                self._remember(run_id, CLUSTER_LOGIN)
            elif taken := TAKEN.fullmatch(signed) or await self._taken_before(run_id):
                self._remember(run_id, taken[1])
            else:
                return None
        self._owners.move_to_end(run_id)
        return self._owners[run_id]

    async def _taken_before(self, run_id: UUID) -> "re.Match[str] | None":
        """What the run's history says, where its state doesn't: the instructor cancels it, or it is older than the signature."""
        states = await self._inner.get(f"/flow_run_states/?flow_run_id={run_id}") or []
        pending = [state for state in states if state["type"] == "PENDING"]
        newest = max(pending, key=lambda state: state["timestamp"], default=None)
        return TAKEN.fullmatch(newest["message"] or "") if newest else None

    def _remember(self, run_id: UUID, login: str) -> None:
        self._owners[run_id] = login
        if len(self._owners) > REMEMBERED:
            self._owners.popitem(last=False)

    def took(self, login: str, run_id: UUID) -> None:
        """This student has just taken this run."""
        self._remember(run_id, login)
        self._open[run_id] = self._changed[run_id] = login

    def ended(self, run_id: UUID) -> None:
        """This run is no longer anybody's work."""
        self._open.pop(run_id, None)
        self._changed[run_id] = None

    async def require_own(self, login: str, run_id: UUID) -> None:
        """Raises Refused if the run isn't this student's."""
        owner = self._owners.get(run_id) or await self.owner(await self.run(run_id))
        if owner != login:
            raise Refused(403, "This run isn't yours.")

    async def owned(self, login: str, run_ids: Iterable[UUID]) -> list[UUID]:
        """Those of these runs that are this student's. Prefect is asked once for all that aren't known."""
        wanted = list(run_ids)
        if unknown := [str(run) for run in wanted if run not in self._owners]:
            for run in await self._find(await self.deployments_of(CLUSTER_LOGIN), id={"any_": unknown}):
                await self.owner(run)
        return [run for run in wanted if self._owners.get(run) == login]

    async def open_runs(self, login: str, *, now: bool = False) -> list[UUID]:
        """The runs that this student has taken and not ended.

        Args:
            now: as Prefect has it now. Else one that the instructor has ended may be among them for LOOK seconds.
        """
        await self.deployment()
        # A pod's run is taken with the instructor's login, which isn't watched.
        if login == CLUSTER_LOGIN and self._of_pods is not None:
            return [UUID(run["id"]) for run in await self._find([self._of_pods["id"]], state=BEING_WORKED)]
        oldest = time.monotonic() - (0 if now else LOOK)
        if now:
            await asyncio.sleep(self._looked_at_runs + AGAIN - time.monotonic())
        while self._looked_at_runs < oldest:  # a look that is under way may have begun too early
            await self._runs.answer()
        return [run for run, owner in self._open.items() if owner == login]

    async def _look_at_runs(self) -> None:
        began = time.monotonic()
        self._changed.clear()
        runs = await self._find([(await self.deployment())["id"]], state=BEING_WORKED)
        owners = {UUID(run["id"]): await self.owner(run) for run in runs} | self._changed
        self._open = {run: login for run, login in owners.items() if login is not None}
        self._looked_at_runs = began

    async def _find(self, deployments: list[str], **which: Any) -> list[dict[str, Any]]:
        """Runs of these deployments, page by page."""
        found: list[dict[str, Any]] = []
        wanted = {"deployment_id": {"any_": deployments}, **which}
        while True:
            body = {"flow_runs": wanted, "limit": PAGE, "offset": len(found)}
            response = await self._inner.call("POST", "/flow_runs/filter", body)
            if response.status_code != 200:
                raise Refused(503, f"Prefect answered {response.status_code}. Ask again.")
            found += (page := response.json())
            if len(page) < PAGE:
                return found

    def claiming(self, login: str) -> asyncio.Lock:
        """Held while a student takes a run: counting and taking belong together."""
        return self._locks[login]
