"""The warden: ends runs of pods that can't go on, with the reason. Prefect itself only says that no pod succeeded, waits for an image that can't be
pulled for as long as Kubernetes does, and leaves the pod of a cancelled run alone.
"""

import time
from collections.abc import Callable
from typing import Any

from deployments.kubernetes import cluster
from deployments.kubernetes.pods import Fate, Pod
from deployments.prefect_api import PrefectApi
from gan_core.errors import ClusterError, StackError

PAGE = 200  # runs that Prefect tells of in one answer
LEFT_ALONE = ("COMPLETED", "FAILED", "CANCELLED")  # such a run has ended and said why
OVER = ("CANCELLING", "CANCELLED", "CRASHED")  # such a run's pod works for nobody: another may have its rank


class Warden:
    """Looks at the class's pods, and at what Prefect says of their runs.

    Args:
        api: the class's Prefect server, as the instructor.
        namespace: of the class in the cluster.
        patience: seconds that a pod may be stuck before its run is ended and its Job deleted.
        say: told what was ended, and what went wrong.
    """

    def __init__(self, api: PrefectApi, namespace: str, patience: float, say: Callable[[str], None]) -> None:
        self._api, self._namespace, self._patience, self._say = api, namespace, patience, say
        self._stuck: dict[str, float] = {}  # Job → when it was first seen stuck, by time.monotonic
        self._outlives: set[str] = set()  # Jobs that the last look found at work for a run that has crashed
        self._complaint = ""

    def look(self) -> None:
        """Look once. Whatever goes wrong is only reported, once: the next look may go better."""
        try:
            self._follow(cluster.pods(self._namespace))
        except Exception as exc:  # noqa: BLE001  pods must not lose their worker over an answer that nobody foresaw
            foreseen = isinstance(exc, ClusterError | StackError | OSError)
            complaint = str(exc) if foreseen else f"A look at the pods failed ({exc!r}); the next follows in seconds."
            if complaint != self._complaint:
                self._complaint = complaint
                self._say(complaint)
        else:
            self._complaint = ""

    def _follow(self, pods: list[Pod]) -> None:
        now, runs = time.monotonic(), self._runs([pod.run for pod in pods if pod.run])
        self._stuck = {pod.job: self._stuck.get(pod.job, now) for pod in pods if pod.fate is Fate.STUCK}
        outlived, self._outlives = self._outlives, set()
        for pod in pods:
            state = runs.get(pod.run, {}).get("state_type")
            has_ended = pod.fate in (Fate.DONE, Fate.FAILED)
            is_hopeless = pod.fate is Fate.STUCK and now - self._stuck[pod.job] >= self._patience
            if state == "CANCELLING":
                self._set(pod, "CANCELLED", "It was taken back. A pod that works finishes its unit and ends.")
            elif state and state not in LEFT_ALONE and (pod.fate is Fate.FAILED or is_hopeless):
                reason = f"{pod.name}: {pod.reason}"
                if (runs[pod.run].get("state") or {}).get("message") != reason:
                    self._set(pod, "CRASHED", reason)
                    self._say(reason)
            if state == "CRASHED" and not has_ended and not pod.is_leaving:
                self._outlives.add(pod.job)
            # Not at the first look: the pod was seen before its run, and may be why that has crashed since. Then the Job knows
            # the reason, at the latest at the next look.
            is_over = state in OVER and (state != "CRASHED" or pod.job in outlived & self._outlives)
            # Only now: Prefect shall not take the Job's end for the reason.
            if not has_ended and (is_hopeless or is_over):
                cluster.delete(self._namespace, [pod.job])

    def _runs(self, ids: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for start in range(0, len(ids), PAGE):
            wanted = {"flow_runs": {"id": {"any_": ids[start : start + PAGE]}}, "limit": PAGE}
            found |= {run["id"]: run for run in self._api("POST", "/flow_runs/filter", wanted)}
        return found

    def _set(self, pod: Pod, kind: str, message: str) -> None:
        state = {"type": kind, "name": kind.capitalize(), "message": message}
        self._api("POST", f"/flow_runs/{pod.run}/set_state", {"state": state, "force": True})
