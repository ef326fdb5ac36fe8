"""What a student may say over websockets: that a worker is there, that a run is alive, and to hear of its own runs.

Like over HTTP, no frame is passed on as it came: each is checked and written anew, or dropped. A bad event is dropped and
the socket stays open, since Prefect's client would lose all later events with it.
"""

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from prefect.client.schemas.worker_channel import (
    WORK_POOL_SNAPSHOT_CAPABILITY,
    WORK_POOL_WORKER_CHANNEL_VERSION,
    WORKER_HEARTBEAT_CAPABILITY,
)

from deployments.server.gate.logins import Person
from deployments.server.gate.runs import Refused, Shifts
from deployments.server.gate.values import at, is_uuid, machine_name, seconds, text
from tasks.background.shifts import POOL

FRAME_CHARACTERS = 64_000  # the largest that a worker sends has a few thousand
WORKER_EVENTS = ("started", "stopped", "submitted-flow-run", "executed-flow-run")
OUT_EVENTS = ("prefect.flow-run.Cancelling", "prefect.flow-run.Suspended")
NAMESPACE = UUID("4f8e0c0e-6f2c-4b53-8f2b-6f6a2f1f6f57")  # of event ids
KIND = "gan-student"
SPREAD = 1.0  # seconds over which frames are spread that come in the same moment: after a restart all workers say hello

Rewrite = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]


class StudentSocket:
    """One websocket of a student's, after the login.

    Raises:
        Refused: from the constructor, if students have nothing to do on this path.
    """

    def __init__(self, person: Person, path: str, shifts: Shifts, students: Callable[[], list[str]]) -> None:
        rewrites: dict[str, Rewrite] = {
            f"/api/work_pools/{POOL}/workers/connect": self._worker,
            "/api/events/in": self._event,
            "/api/events/out": self._filter,
        }
        if path not in rewrites:
            raise Refused(403, "Students may not connect here.")
        self._rewrite = rewrites[path]
        self._person, self._shifts, self._students = person, shifts, students
        self._is_first = True

    async def frame(self, given: str) -> str | None:
        """The frame that Prefect gets instead; None: none.

        Raises:
            Refused: the socket shall be closed.
        """
        if len(given) > FRAME_CHARACTERS:
            raise Refused(413, "The frame is too large.")
        if not self._person.frames.take():
            return None
        try:
            found = json.loads(given)
        except (ValueError, RecursionError):
            return None
        written = await self._rewrite(found) if isinstance(found, dict) else None
        return None if written is None else json.dumps(written)

    async def _worker(self, frame: dict[str, Any]) -> dict[str, Any] | None:
        """A hello that makes no pool and asks for nothing but heartbeats and news of the pool; then heartbeats."""
        wanted = "worker.hello.v1" if self._is_first else "worker.heartbeat.v1"
        if frame.get("type") != wanted:
            return None
        payload: dict[str, Any] = {
            "consumer_id": at(frame, "payload", "consumer_id"),
            "worker_name": machine_name(self._person, at(frame, "payload", "worker_name"), self._students()),
            "heartbeat_interval_seconds": seconds(at(frame, "payload", "heartbeat_interval_seconds")),
        }
        if self._is_first:
            payload |= {
                "worker_type": KIND,
                "supported_channel_versions": [WORK_POOL_WORKER_CHANNEL_VERSION],
                "requested_capabilities": [WORKER_HEARTBEAT_CAPABILITY, WORK_POOL_SNAPSHOT_CAPABILITY],
                "create_pool_if_not_found": False,
            }
        await asyncio.sleep(random.uniform(0, SPREAD))
        self._is_first = False
        return {"type": wanted, "id": frame.get("id"), "sent_at": datetime.now(UTC).isoformat(), "payload": payload}

    async def _event(self, frame: dict[str, Any]) -> dict[str, Any] | None:
        """Signs of life of the student's own runs and workers, at the server's time. Of the rest nothing is believed.

        Above all no task runs: Prefect would write what such an event says over anybody's task run. A shift has none.
        """
        name, about = frame.get("event"), text(at(frame, "resource", "prefect.resource.id"), 200)
        if name == "prefect.flow-run.heartbeat":
            run = about.removeprefix("prefect.flow-run.")
            if not is_uuid(run) or not await self._shifts.owned(self._person.login, [UUID(run)]):
                return None
            resource = {"prefect.resource.id": f"prefect.flow-run.{UUID(run)}"}
        elif name in [f"prefect.worker.{what}" for what in WORKER_EVENTS]:
            asked = at(frame, "resource", "prefect.resource.name")
            worker = machine_name(self._person, asked, self._students())
            slug = re.sub(r"[^a-z0-9]+", "-", worker.lower())
            resource = {"prefect.resource.id": f"prefect.worker.{KIND}.{slug}", "prefect.resource.name": worker}
        else:
            return None
        return {
            # Sent again after a broken connection, it is still the same event; nobody else's has this id.
            "id": str(uuid5(NAMESPACE, f"{self._person.login} {text(frame.get('id'), 100)}")),
            "occurred": datetime.now(UTC).isoformat(),
            "event": name,
            "resource": resource,
        }

    async def _filter(self, frame: dict[str, Any]) -> dict[str, Any] | None:
        """Whatever was asked for, it becomes: when somebody cancels or suspends a run that this student has open now."""
        if not self._is_first:
            return None
        self._is_first, now = False, datetime.now(UTC)
        own = [f"prefect.flow-run.{run}" for run in await self._shifts.open_runs(self._person.login)]
        wanted = {
            "event": {"name": list(OUT_EVENTS)},
            "resource": {"id": own or ["prefect.flow-run.none"]},  # an empty list would mean all
            "occurred": {
                "since": text(at(frame, "filter", "occurred", "since"), 50) or now.isoformat(),
                "until": (now + timedelta(days=365)).isoformat(),  # it stays open
            },
        }
        return {"type": "filter", "backfill": frame.get("backfill", True) is True, "filter": wanted}
