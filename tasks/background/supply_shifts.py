"""Keep as many shifts queued as there are free places among the students' workers."""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled

from tasks.background.crash_vanished import crash, tell_lost, vanished_shifts
from tasks.background.shifts import count_shifts, create_shifts, impatient_client, online_workers, runs_of_shifts
from tasks.background.supply_pods import top_up_pods

log = logging.getLogger("classgan.supply")

SECONDS = 2.0  # between looks
LOOKS = 15  # between two looks for machines that vanished
WAITING = "shift (waiting)"  # a shift's name until somebody takes it: the flow gives the run its own as it begins
LEFT_OVER = "shift (not needed)"
LEAD = 1  # shifts kept waiting beyond the workers that have none: whoever has a second device takes it


@contextmanager
def supplied_shifts(training: str, pods: Callable[[], int]) -> Generator[None]:
    """While this holds, whoever is free finds a shift. What is left over is cancelled at the end.

    Args:
        training: whose shifts in the cluster are kept up, if the class has one.
        pods: how many of those it wants now.
    """
    ended, cluster = threading.Event(), Cluster(training, pods)
    thread = threading.Thread(target=_supply, args=(ended, cluster), name="supply", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Cluster:
    """The pods of one training. A class that never asks for any never asks Prefect about them."""

    def __init__(self, training: str, pods: Callable[[], int]) -> None:
        self.training, self._pods = training, pods
        self._is_used = self._has_complained = False

    def top_up(self, client: SyncPrefectClient, *, is_over: bool = False) -> None:
        """Bring the number of pods to what is wanted; to none once the training is over."""
        wanted = 0 if is_over else self._pods()
        self._is_used |= wanted > 0
        if not self._is_used:
            return
        try:
            top_up_pods(client, self.training, wanted)
        except ObjectNotFound:
            if not self._has_complained:
                log.warning(
                    "The plan asks for %d pods (cluster_shifts), but this class has no pool of them. Make one: "
                    "classgan kubernetes pool --image NAME:TAG",
                    wanted,
                )
            self._has_complained = True


def _supply(ended: threading.Event, cluster: Cluster) -> None:
    complained, looks, suspects, told = False, 0, set(), datetime.now(UTC)
    with impatient_client() as client:
        while True:
            try:
                top_up(client)
                cluster.top_up(client)
                if (
                    looks % LOOKS == 0
                ):  # who is suspected twice in a row has vanished: after an outage everybody gets time to report
                    before, suspects = suspects, vanished_shifts(client)
                    crash(client, before & suspects)
                    since, told = told, datetime.now(UTC)
                    tell_lost(client, cluster.training, since)
                complained, looks = False, looks + 1
            except Exception as exc:  # noqa: BLE001  whatever Prefect's client raises, the next look may go better
                if not complained:
                    log.warning("Prefect does not answer, so no new shifts for now (running ones go on): %s", exc)
                    complained = True
            if ended.wait(SECONDS):
                break
        try:
            cluster.top_up(client, is_over=True)
            for run in runs_of_shifts(client, StateType.SCHEDULED, StateType.PENDING):
                client.set_flow_run_state(run.id, Cancelled(message="No training needs it any more."))
                client.update_flow_run(run.id, name=LEFT_OVER)
        except Exception as exc:  # noqa: BLE001  left-over shifts end by themselves when they find nothing to do
            log.info("Left-over shifts were not cancelled: %s", exc)


def top_up(client: SyncPrefectClient) -> int:
    """Create the shifts that are missing now; returns how many."""
    online = online_workers(client)
    # A run that is taken and never begins waits for nobody: who hoards such runs must not keep the others without one.
    taken = count_shifts(client, StateType.PENDING, StateType.RUNNING)
    waiting = count_shifts(client, StateType.SCHEDULED)
    missing = max(0, max(LEAD, len(online) - taken) - waiting)
    create_shifts(client, missing, WAITING)
    return missing
