"""What the class server knows of shift runs: which are shifts, and whose they are. Asked of Prefect itself, never of students.

Whose run it is stands in the run's own history. When a student takes a scheduled run, the gate writes the login into the
message of the Pending state, in the same request: taking and noting are one transaction, and of two students one wins.
Students can't write that message, since every Pending state of theirs is written anew. So it survives a restart, needs
no table, and the instructor reads it in the UI.

Shifts in a Kubernetes cluster are runs of a second deployment. Its own worker takes them, with the instructor's login, and
they belong to the login that the pods come in with, CLUSTER_LOGIN.
"""

import asyncio
import base64
import random
import re
import time
from collections import OrderedDict, defaultdict
from typing import Any
from uuid import UUID

import httpx

from gan_core.store.logins import CLUSTER_LOGIN
from tasks.background.shifts import CLUSTER_SHIFT, SHIFT

OPEN_RUNS = 16  # a student may have at once: two machines of eight devices
REMEMBERED = 20_000  # runs whose owner is kept in memory
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds, about, before a call is repeated
OPEN = ("PENDING", "RUNNING", "CANCELLING")
TAKEN = re.compile(r"Taken by (\S+)\.")


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


class Shifts:
    """The runs that students work on: of the one deployment, and of the one for pods if the class has it."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._owners: OrderedDict[UUID, str] = OrderedDict()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._deployment: dict[str, Any] | None = None
        self._of_pods: dict[str, Any] | None = None
        self._looked = float("-inf")

    async def deployment(self) -> dict[str, Any]:
        """The shift deployment, looked up again every ten seconds: it may be made anew."""
        if self._deployment is None or time.monotonic() - self._looked > 10:
            self._deployment = await self._inner.get(f"/deployments/name/{SHIFT}")
            self._of_pods = await self._inner.get(f"/deployments/name/{CLUSTER_SHIFT}")
            self._looked = time.monotonic()
        if self._deployment is None:
            raise Refused(503, f"There is no deployment {SHIFT} yet. Ask again later.")
        return self._deployment

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

    async def owner(self, run_id: UUID) -> str | None:
        """Who has taken this run; None if nobody has, or if it is no shift."""
        if run_id not in self._owners:
            if await self.is_of_pods(await self.run(run_id)):
                return CLUSTER_LOGIN
            states = await self._inner.get(f"/flow_run_states/?flow_run_id={run_id}") or []
            pending = [state for state in states if state["type"] == "PENDING"]
            newest = max(pending, key=lambda state: state["timestamp"], default=None)
            if newest is None or not (taken := TAKEN.fullmatch(newest["message"] or "")):
                return None
            self.remember(run_id, taken[1])
        self._owners.move_to_end(run_id)
        return self._owners[run_id]

    def remember(self, run_id: UUID, login: str) -> None:
        self._owners[run_id] = login
        if len(self._owners) > REMEMBERED:
            self._owners.popitem(last=False)

    async def require_own(self, login: str, run_id: UUID) -> None:
        """Raises Refused if the run isn't this student's."""
        if await self.owner(run_id) != login:
            raise Refused(403, "This run isn't yours.")

    async def owned(self, login: str, run_ids: list[UUID]) -> list[UUID]:
        """Those of these runs that are this student's."""
        found = []
        for run_id in run_ids:
            try:
                await self.require_own(login, run_id)
            except Refused as refused:
                if refused.status == 503:
                    raise
            else:
                found.append(run_id)
        return found

    async def open_runs(self, login: str) -> list[UUID]:
        """The runs that this student has taken and not ended."""
        found: list[UUID] = []
        wanted = {
            "deployment_id": {"any_": await self.deployments_of(login)},
            "state": {"type": {"any_": list(OPEN)}},
        }
        for offset in range(0, 10_000, 200):
            body = {"flow_runs": wanted, "limit": 200, "offset": offset}
            response = await self._inner.call("POST", "/flow_runs/filter", body)
            if response.status_code != 200:
                raise Refused(503, f"Prefect answered {response.status_code}. Ask again.")
            page = [UUID(run["id"]) for run in response.json()]
            found += await self.owned(login, page)
            if len(page) < 200:
                break
        return found

    def claiming(self, login: str) -> asyncio.Lock:
        """Held while a student takes a run: counting and taking belong together."""
        return self._locks[login]
