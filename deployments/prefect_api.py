"""The few calls to Prefect's API that a stack makes: without Prefect's client, which takes seconds to import."""

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from deployments.prefect_settings import POOLS, job_template
from gan_core.errors import StackError


class PrefectApi:
    """Call it with method, path and body; it returns what the answer says, and None where something is there already.
    It raises StackError where Prefect refuses, or where something else than Prefect answers.

    Args:
        environment: Prefect's settings, of which this uses address, login and certificate.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.url = environment["PREFECT_API_URL"]
        self._headers = {"Content-Type": "application/json"}
        if login := environment.get("PREFECT_API_AUTH_STRING"):
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.ProxyHandler({})
        ]  # never behind a proxy: it is here
        if pem := environment.get("PREFECT_API_SSL_CERT_FILE"):
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=pem)))
        self._opener = urllib.request.build_opener(*handlers)

    def __call__(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}{path}", method=method, data=data, headers=self._headers)
        for patience in (0.2, 0.5, 1, 2, 4, 0):
            try:
                with closing(self._opener.open(request, timeout=30)) as response:
                    return json.loads(response.read() or b"null")
            except urllib.error.HTTPError as exc:
                if exc.code == 409:  # it is there already
                    return None
                if exc.code in (500, 503) and patience:  # its database is away: nothing was done
                    time.sleep(patience)
                    continue
                reason = exc.read().decode(errors="replace")[:500]
                raise StackError(f"Prefect refused {method} {path} ({exc.code}): {reason}") from exc
            except (http.client.HTTPException, ValueError) as exc:
                raise StackError(f"What answers at {self.url} is not Prefect: {exc}.") from exc
        return None

    def make_pools(self) -> None:
        for pool, kind in POOLS.items():
            self("POST", "/work_pools/", {"name": pool, "type": kind, "base_job_template": job_template(kind)})

    def start_training(self, name: str, plan: dict[str, Any]) -> str:
        """Run `train` with this plan; returns the run's id."""
        deployment = self("GET", "/deployments/name/train/train")
        wanted = {"parameters": {"name": name, "plan": plan}, "state": {"type": "SCHEDULED"}}
        return self("POST", f"/deployments/{deployment['id']}/create_flow_run", wanted)["id"]

    def run_state(self, run_id: str) -> tuple[str, str]:
        """Name and message of a flow run's state; "unknown" while Prefect doesn't answer."""
        state = {}
        with suppress(OSError, StackError):
            state = self("GET", f"/flow_runs/{run_id}")["state"] or {}
        return state.get("name", "unknown"), state.get("message") or ""

    def crash_stale_runs(self) -> None:
        """Runs that a killed or stopped stack left as running never will end by themselves: Prefect shall say so."""
        stale = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}}}
        for run in self("POST", "/flow_runs/filter", stale):
            state = {"type": "CRASHED", "name": "Crashed", "message": "The class was stopped while this ran."}
            self("POST", f"/flow_runs/{run['id']}/set_state", {"state": state, "force": True})
