"""What Kubernetes says of a pod, in our sentences: pure, with answers as its API gives them."""

from typing import Any

import pytest

from deployments.kubernetes.pods import Fate, fate_of, gone, read, summary

TERMINATED = {"name": "prefect-job", "image": "x:1"}


def pod(phase: str, name: str = "digits-0-abcde-fghij", job: str = "digits-0-abcde", **status: Any) -> dict[str, Any]:
    labels = {
        "classgan/training": "digits",
        "classgan/rank": "0",
        "job-name": job,
        "prefect.io/flow-run-id": f"run of {job}",
    }
    meta = {"name": name, "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": phase, **status}}


def job(name: str = "digits-0-abcde", **status: Any) -> dict[str, Any]:
    return {"metadata": pod("", name, name)["metadata"], "status": status}


def container(**state: Any) -> list[dict[str, Any]]:
    return [{**TERMINATED, "state": state}]


def unschedulable(message: str) -> list[dict[str, str]]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


def disrupted(reason: str) -> list[dict[str, str]]:
    return [
        {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "preempting to accommodate another"}
    ]


@pytest.mark.parametrize(
    ("found", "fate", "words"),
    [
        (pod("Pending"), Fate.WAITING, "looks for a node"),
        (pod("Pending", conditions=unschedulable("0/3: 3 Insufficient nvidia.com/gpu.")), Fate.WAITING, "No node has a GPU free"),
        (pod("Pending", conditions=unschedulable("0/3: 3 Insufficient memory.")), Fate.WAITING, "room for it"),
        (pod("Pending", conditions=unschedulable("0/3: had untolerated taint {gpu: }")), Fate.WAITING, "`tolerations`"),
        (pod("Pending", conditions=unschedulable("didn't match Pod's node affinity/selector")), Fate.WAITING, "`node_selector`"),
        (pod("Pending", containerStatuses=container(waiting={"reason": "ContainerCreating"})), Fate.WAITING, "fetches the image"),
        (pod("Pending", containerStatuses=container(waiting={"reason": "ErrImagePull", "message": "not found"})), Fate.STUCK, "'x:1' can't be pulled"),
        (pod("Pending", containerStatuses=container(waiting={"reason": "InvalidImageName"})), Fate.STUCK, "can't be pulled"),
        (pod("Pending", containerStatuses=container(waiting={"reason": "CreateContainerConfigError", "message": 'secret "a" not found'})), Fate.STUCK, "step 3"),
        (pod("Running", containerStatuses=container(running={})), Fate.RUNNING, "works on node-1"),
        (pod("Succeeded"), Fate.DONE, "good order"),
        (pod("Failed", reason="Evicted", message="low on memory."), Fate.FAILED, "evicted from node-1 (low on memory)"),
        (pod("Failed", reason="DeadlineExceeded"), Fate.FAILED, "deadline"),
        (pod("Failed", conditions=disrupted("PreemptionByScheduler")), Fate.FAILED, "PreemptionByScheduler"),
        (pod("Failed", containerStatuses=container(terminated={"reason": "OOMKilled", "exitCode": 137})), Fate.FAILED, "Raise the pool's variable `memory`"),
        (pod("Failed", containerStatuses=container(terminated={"exitCode": 3, "message": "a\nthe last line\n"})), Fate.FAILED, "exit code 3: the last line"),
        (pod("Failed", containerStatuses=container(terminated={"exitCode": 3})), Fate.FAILED, "said nothing"),
        (pod("Failed", reason="NodeShutdown", message="bye"), Fate.FAILED, "NodeShutdown: bye"),
    ],
)  # fmt: skip
def test_what_kubernetes_says_becomes_a_fate_and_a_sentence(found, fate, words):
    what, sentence = fate_of(found)
    assert what is fate
    assert words in sentence


def test_a_volume_that_can_not_be_mounted_is_told_by_its_event():
    """The pod itself only says that its container is being made."""
    event = {
        "involvedObject": {"kind": "Pod", "name": "digits-0-abcde-fghij"},
        "message": 'secret "classgan-invite" not found',
    }
    creating = pod("Pending", containerStatuses=container(waiting={"reason": "ContainerCreating"}))
    [found] = read([job()], [creating], [event])
    assert found.fate is Fate.STUCK
    assert 'secret "classgan-invite" not found' in found.reason
    assert "step 3" in found.reason


def test_a_job_without_a_pod_says_why():
    event = {"involvedObject": {"kind": "Job", "name": "digits-0-abcde"}, "message": "exceeded quota: classgan."}
    failed = {"type": "Failed", "status": "True"}
    for found, told, fate, words in (
        (job(), [], Fate.WAITING, "hasn't made its pod yet"),
        (job(), [event], Fate.STUCK, "raise the quota"),
        (job(conditions=[{**failed, "reason": "BackoffLimitExceeded"}]), [], Fate.FAILED, "deleted"),
        (job(conditions=[{**failed, "reason": "DeadlineExceeded"}]), [], Fate.FAILED, "deadline"),
        (job(conditions=[{**failed, "reason": "New", "message": "Something."}]), [], Fate.FAILED, "Something"),
        (job(conditions=[{"type": "Complete", "status": "True"}]), [], Fate.DONE, "pod is gone"),
    ):
        [row] = read([found], [], told)
        assert row.fate is fate
        assert words in row.reason


def test_a_training_runs_only_if_a_pod_of_it_does():
    """The rule that the summary states; nobody's pod is left out of the count."""

    def told(*phases: str) -> str:
        pods = [pod(phase, f"pod {n}", f"job {n}") for n, phase in enumerate(phases)]
        return summary("digits", read([], pods))

    assert told("Pending", "Pending") == "digits waits in the cluster: 2 pods, 2 waiting."
    assert told("Pending", "Running", "Failed") == "digits runs in the cluster: 3 pods, 1 waiting, 1 running, 1 failed."
    assert told("Succeeded", "Failed") == "digits is idle in the cluster: 2 pods, 1 done, 1 failed."


def test_what_is_no_longer_in_the_cluster_is_told_by_prefect():
    pods = read([job()], [pod("Running")])
    state = {"type": "CRASHED", "name": "Crashed", "message": "Kubernetes job was deleted"}
    runs = [
        {
            "id": run,
            "name": "n",
            "state_type": "CRASHED",
            "state": state,
            "job_variables": {"training": "faces", "rank": "2"},
        }
        for run in (pods[0].run, "another run")
    ]
    [found] = gone(runs, pods)
    assert (found.training, found.rank, found.fate) == ("faces", "2", Fate.FAILED)
    assert found.reason == "Kubernetes job was deleted"


def test_a_pod_that_was_told_to_end_is_known_to_leave():
    told = pod("Running")
    told["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert [found.is_leaving for found in read([job()], [told])] == [True]
    assert [found.is_leaving for found in read([job()], [pod("Running")])] == [False]
