"""Says what has become of each pod of the class, in sentences. Pure functions of what the Kubernetes API answers (JSON)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from gan_core.units import counted

TRAINING, RANK, RUN = "classgan/training", "classgan/rank", "prefect.io/flow-run-id"  # labels of a Job and its pod

IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
NOT_MADE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff")
TOLD = 300  # characters of what Kubernetes says


class Fate(StrEnum):
    """How far a pod has come."""

    WAITING = "waiting"  # it hasn't begun, and may do so by itself
    STUCK = "stuck"  # it hasn't begun, and won't until somebody does something
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # it ended otherwise; the class starts another


@dataclass(frozen=True, slots=True)
class Pod:
    """One shift in the cluster: its Job, and the pod of it if there is one."""

    name: str  # of the pod; of the Job if there is none
    job: str
    training: str
    rank: str
    run: str  # id of the Prefect run
    fate: Fate
    reason: str  # a sentence
    since: datetime | None  # it was made
    is_leaving: bool = False  # it was told to end, and may finish its unit first


def read(jobs: Iterable[Any], pods: Iterable[Any], events: Iterable[Any] = ()) -> list[Pod]:
    """Every shift of these Jobs and pods, by training and rank.

    Args:
        jobs, pods, events: `items` of the lists that the API gives. Events tell why a Job has no pod, and why a volume
            can't be mounted; without them those sentences are shorter.
    """
    told = {_object(event): event.get("message", "") for event in events}
    owned: dict[str, list[Any]] = defaultdict(list)
    for pod in pods:
        owned[_labels(pod).get("job-name", "")].append(pod)
    found = []
    for job in jobs:
        of_job = sorted(owned.pop(job["metadata"]["name"], []), key=lambda pod: pod["metadata"]["creationTimestamp"])
        found.append(_of_pod(of_job[-1], told) if of_job else _of_job(job, told))
    found += [_of_pod(pod, told) for left in owned.values() for pod in left]  # their Job was deleted
    return sorted(found, key=lambda pod: (pod.training, pod.rank.zfill(4), pod.name))


def summary(training: str, pods: Sequence[Pod]) -> str:
    """All pods of one training in a sentence.

    It runs if one of them does; else it is stuck if one is, waits if one does, and is idle otherwise. So "runs" is never
    said of a training whose pods all wait, and every pod that isn't well is counted.
    """
    counts = Counter(pod.fate for pod in pods)
    order = (Fate.RUNNING, Fate.STUCK, Fate.WAITING)
    words = {Fate.RUNNING: "runs", Fate.STUCK: "is stuck", Fate.WAITING: "waits"}
    state = next((words[fate] for fate in order if counts[fate]), "is idle")
    parts = ", ".join(f"{counts[fate]} {fate}" for fate in Fate if counts[fate])
    return f"{training} {state} in the cluster: {counted(len(pods), 'pod')}, {parts}."


def gone(runs: Iterable[Mapping[str, Any]], pods: Iterable[Pod]) -> list[Pod]:
    """Shifts that are no longer in the cluster, from what Prefect keeps of their runs.

    Args:
        runs: that have ended, as Prefect's API gives them.
        pods: that the cluster still knows.
    """
    known = {pod.run for pod in pods}
    fates = {"COMPLETED": Fate.DONE, "CANCELLED": Fate.DONE}
    return [
        Pod(
            name=(run.get("infrastructure_pid") or run["name"]).rpartition(":")[2],
            job="",
            training=(run.get("job_variables") or {}).get("training", ""),
            rank=str((run.get("job_variables") or {}).get("rank", "")),
            run=run["id"],
            fate=fates.get(run["state_type"], Fate.FAILED),
            reason=f"{run['state']['message'] or run['state']['name']}",
            since=None,
        )
        for run in runs
        if run["id"] not in known
    ]


def _of_pod(pod: Mapping[str, Any], told: Mapping[tuple[str, str], str]) -> Pod:
    fate, reason = fate_of(pod, told.get(("Pod", pod["metadata"]["name"]), ""))
    told_to_end = bool(pod["metadata"].get("deletionTimestamp"))
    return replace(_pod(pod, _labels(pod).get("job-name", ""), fate, reason), is_leaving=told_to_end)


def _of_job(job: Mapping[str, Any], told: Mapping[tuple[str, str], str]) -> Pod:
    """A Job that has no pod: not yet, or no longer."""
    name, conditions = job["metadata"]["name"], job.get("status", {}).get("conditions") or []
    ended = {c["type"]: c for c in conditions if c.get("status") == "True"}
    if "Complete" in ended:
        return _pod(job, name, Fate.DONE, "It ended in good order; its pod is gone.")
    if failed := ended.get("Failed"):
        why = {
            "DeadlineExceeded": "It ran into the Job's deadline and was ended. A shift's `max_minutes` must be shorter.",
            "BackoffLimitExceeded": "Its pod was deleted, or its node is gone.",
        }.get(
            failed.get("reason", ""), f"Kubernetes says: {_short(failed.get('message') or failed.get('reason') or '')}"
        )
        return _pod(job, name, Fate.FAILED, why)
    if message := told.get(("Job", name)):
        hint = " Delete what isn't needed, or raise the quota." if "quota" in message else ""
        return _pod(job, name, Fate.STUCK, f"No pod could be made for it: {_short(message)}{hint}")
    return _pod(job, name, Fate.WAITING, "Kubernetes hasn't made its pod yet.")


def fate_of(pod: Mapping[str, Any], told: str = "") -> tuple[Fate, str]:
    """How far a pod has come, and why, in a sentence with the next step.

    Args:
        pod: as the API gives it.
        told: the newest warning among its events; "" if there is none.
    """
    status, phase = pod.get("status", {}), pod.get("status", {}).get("phase", "Pending")
    node = pod.get("spec", {}).get("nodeName", "its node")
    if phase == "Succeeded":
        return Fate.DONE, "It ended in good order."
    if phase == "Failed":
        return Fate.FAILED, _why_failed(pod, status, node)
    if pod["metadata"].get("deletionTimestamp"):
        return Fate.RUNNING if phase == "Running" else Fate.FAILED, "It was deleted; it finishes its unit and ends."
    for container in status.get("containerStatuses") or []:
        state = container.get("state", {})
        if waiting := state.get("waiting"):
            return _why_waiting(waiting, container.get("image", ""), told)
        if terminated := state.get("terminated"):
            return Fate.FAILED, _why_ended(terminated)
    if phase == "Running":
        return Fate.RUNNING, f"It works on {node}."
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return Fate.WAITING, _why_unschedulable(condition.get("message", ""))
    return Fate.WAITING, f"Kubernetes prepares it: {_short(told)}" if told else "Kubernetes looks for a node for it."


def _why_waiting(waiting: Mapping[str, Any], image: str, told: str) -> tuple[Fate, str]:
    reason, message = waiting.get("reason", ""), _short(waiting.get("message", ""))
    if reason in IMAGE:
        return Fate.STUCK, (
            f"Its image {image!r} can't be pulled ({reason}: {message}). Check name and tag, that it was pushed, and that the "
            "cluster may read from there. Another one: classgan kubernetes pool --image NAME:TAG"
        )
    if reason in NOT_MADE:
        hint = " Make it: docs/kubernetes.md, step 3." if "secret" in message else ""
        return Fate.STUCK, f"Its container can't be started ({reason}: {message}).{hint}"
    if told:
        hint = " Make it: docs/kubernetes.md, step 3." if "secret" in told else ""
        return Fate.STUCK, f"Its container can't be prepared: {_short(told)}.{hint}"
    return Fate.WAITING, "Its node fetches the image and starts the container."


def _why_unschedulable(message: str) -> str:
    if "nvidia.com/gpu" in message and "nsufficient" in message:
        return (
            f"No node has a GPU free for it ({_short(message)}). It begins when one is; or add a GPU node, or set the pool's "
            "variable `gpus` to 0."
        )
    if "taint" in message:
        return f"Nodes keep it away by a taint ({_short(message)}). Add the pool's variable `tolerations`."
    if "affinity" in message or "selector" in message:
        return f"No node has the labels it asks for ({_short(message)}). Check the pool's variable `node_selector`."
    if "nsufficient" in message:
        return f"No node has room for it ({_short(message)}). It begins when one has; or ask for less CPU or memory."
    return f"No node takes it ({_short(message)})."


def _why_failed(pod: Mapping[str, Any], status: Mapping[str, Any], node: str) -> str:
    reason, message = status.get("reason", ""), _short(status.get("message", ""))
    if reason == "Evicted":
        return f"It was evicted from {node} ({message}). Its unit goes to another machine."
    if reason == "DeadlineExceeded":
        return "It ran into the Job's deadline and was ended. A shift's `max_minutes` must be shorter."
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            why = _short(condition.get("message", ""))
            return f"It had to leave {node} ({condition.get('reason')}: {why}). Its unit goes to another machine."
    for container in status.get("containerStatuses") or []:
        if terminated := container.get("state", {}).get("terminated"):
            return _why_ended(terminated)
    if pod["metadata"].get("deletionTimestamp"):
        return "It was deleted. Its unit goes to another machine."
    return f"It failed ({': '.join(filter(None, (reason, message))) or 'Kubernetes gives no reason'})."


def _why_ended(terminated: Mapping[str, Any]) -> str:
    if terminated.get("reason") == "OOMKilled":
        return "It needed more memory than it may use, and was killed (OOMKilled). Raise the pool's variable `memory`."
    last = (terminated.get("message") or "").strip().rpartition("\n")[2]
    return (
        f"It ended with exit code {terminated.get('exitCode')}{f': {_short(last)}' if last else ', and said nothing'}"
    )


def _pod(found: Mapping[str, Any], job: str, fate: Fate, reason: str) -> Pod:
    labels, made = _labels(found), found["metadata"].get("creationTimestamp")
    return Pod(
        name=found["metadata"]["name"],
        job=job,
        training=labels.get(TRAINING, ""),
        rank=labels.get(RANK, ""),
        run=labels.get(RUN, ""),
        fate=fate,
        reason=reason,
        since=datetime.fromisoformat(made) if made else None,
    )


def _object(event: Mapping[str, Any]) -> tuple[str, str]:
    involved = event.get("involvedObject") or {}
    return involved.get("kind", ""), involved.get("name", "")


def _labels(found: Mapping[str, Any]) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= TOLD else text[: TOLD - 1] + "…"
