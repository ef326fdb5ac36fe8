"""Ends runs whose pod can't go on, with the reason: Prefect itself only says that no pod succeeded, and waits for an
image that can't be pulled for as long as Kubernetes does.
"""

import time
from collections.abc import Callable

from deployments.kubernetes import cluster
from deployments.kubernetes.pods import Fate, Pod
from deployments.prefect_api import PrefectApi
from gan_core.errors import ClusterError, StackError

PATIENCE = 120.0  # seconds that a pod may be stuck: registries have their moments
LEFT_ALONE = ("COMPLETED", "CANCELLED", "FAILED")  # such a run has ended and said why itself


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
        self._ended: set[str] = set()  # runs that need no further look
        self._complaint = ""

    def look(self) -> None:
        """Look once. A cluster or a server that is away is only reported, once: the next look may go better."""
        try:
            self._heed(cluster.pods(self._namespace))
        except (ClusterError, StackError, OSError) as exc:
            if str(exc) != self._complaint:
                self._complaint = str(exc)
                self._say(self._complaint)
        else:
            self._complaint = ""

    def _heed(self, pods: list[Pod]) -> None:
        now = time.monotonic()
        self._stuck = {pod.job: self._stuck.get(pod.job, now) for pod in pods if pod.fate is Fate.STUCK}
        self._ended &= {pod.run for pod in pods}
        for pod in pods:
            if not pod.run or pod.run in self._ended:
                continue
            is_hopeless = pod.fate is Fate.STUCK and now - self._stuck[pod.job] >= self._patience
            if pod.fate is Fate.FAILED or is_hopeless:
                self._end(pod)
                self._ended.add(pod.run)
            if is_hopeless:  # after its run has ended: Prefect shall not take this for its reason
                cluster.delete(self._namespace, [pod.job])

    def _end(self, pod: Pod) -> None:
        run = self._api("GET", f"/flow_runs/{pod.run}")
        if run["state_type"] in LEFT_ALONE:
            return
        state = {"type": "CRASHED", "name": "Crashed", "message": f"{pod.name}: {pod.reason}"}
        self._api("POST", f"/flow_runs/{pod.run}/set_state", {"state": state, "force": True})
        self._say(f"{pod.name}: {pod.reason}")
