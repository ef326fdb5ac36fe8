"""What the warden ends and what it says, look by look: the cluster and Prefect answer what the test wants."""

import subprocess
import sys
from typing import Any

import pytest

from deployments.cli.server import kubernetes
from deployments.kubernetes import cluster
from deployments.kubernetes.pods import Fate, Pod
from deployments.kubernetes.warden import Warden

GONE = "Its pod was deleted, or its node is gone."


class Class:
    """One pod and its run, as the warden sees and changes them."""

    def __init__(self) -> None:
        self.fate, self.reason = Fate.RUNNING, ""
        self.state, self.message = "RUNNING", ""
        self.has_job, self.is_leaving = True, False
        self.warden = Warden(self.api, "classgan", 120, lambda text: None)  # type: ignore[arg-type]

    def pods(self, namespace: str) -> list[Pod]:
        pod = Pod("digits-0-x", "digits-0", "digits", "0", "run", self.fate, self.reason, None, self.is_leaving)
        return [pod] if self.has_job else []

    def delete(self, namespace: str, jobs: list[str]) -> None:
        self.has_job = False

    def api(self, method: str, path: str, body: dict[str, Any]) -> Any:
        if path.endswith("/set_state"):
            self.state, self.message = body["state"]["type"], body["state"]["message"]
            return None
        return [{"id": "run", "state_type": self.state, "state": {"message": self.message}}]


@pytest.fixture
def school(monkeypatch) -> Class:
    school = Class()
    monkeypatch.setattr(cluster, "pods", school.pods)
    monkeypatch.setattr(cluster, "delete", school.delete)
    return school


def test_the_reason_of_a_pod_that_ends_between_two_questions_is_not_lost(school, monkeypatch):
    """The warden has seen its pod at work; then it ends, Prefect sees that at once and calls its run crashed, without a reason."""

    def pods_then_end(namespace: str) -> list[Pod]:
        seen = school.pods(namespace)
        school.fate, school.reason = Fate.FAILED, GONE
        school.state, school.message = "CRASHED", "No active or succeeded pods found for any job"
        return seen

    monkeypatch.setattr(cluster, "pods", pods_then_end)
    school.warden.look()
    assert school.has_job
    monkeypatch.setattr(cluster, "pods", school.pods)
    school.warden.look()
    assert (school.state, school.message) == ("CRASHED", f"digits-0-x: {GONE}")


def test_a_deleted_pod_that_finishes_its_unit_keeps_its_job_until_that_says_why_it_ended(school):
    """Kubernetes counts a pod as failed as soon as it is told to end, and Prefect calls its run crashed at once."""
    school.state, school.message, school.is_leaving = "CRASHED", "No active or succeeded pods found for any job", True
    for _ in range(3):
        school.warden.look()
    school.fate, school.is_leaving = Fate.WAITING, False  # the pod is gone, its Job doesn't know yet
    school.warden.look()
    school.fate, school.reason = Fate.FAILED, GONE
    school.warden.look()
    assert school.has_job
    assert school.message == f"digits-0-x: {GONE}"


@pytest.mark.parametrize(("said", "looks"), [("CANCELLING", 1), ("CANCELLED", 1), ("CRASHED", 2)])
def test_a_pod_that_works_for_a_run_that_is_over_ends(school, said, looks):
    school.state = said
    for look in range(looks):
        assert school.has_job, look
        school.warden.look()
    assert not school.has_job


def test_an_answer_that_nobody_foresaw_is_said_once_and_the_next_look_goes_on(school, monkeypatch):
    said: list[str] = []
    school.warden._say = said.append

    def odd(namespace: str) -> list[Pod]:
        raise KeyError("metadata")

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "pods", odd)
        for _ in range(2):
            school.warden.look()
    assert said == ["A look at the pods failed (KeyError('metadata')); the next follows in seconds."]
    school.state = "CANCELLED"
    school.warden.look()
    assert not school.has_job


def test_however_the_command_ends_prefects_worker_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSGAN_HOME", str(tmp_path))
    monkeypatch.setattr(
        "deployments.prefect_settings.PREFECT",
        [sys.executable, "-S", "-c", "import threading; threading.Event().wait()"],
    )
    monkeypatch.setattr(kubernetes, "_reach", lambda: {"PREFECT_API_URL": "http://127.0.0.1:9/api"})
    started: list[subprocess.Popen] = []
    real = subprocess.Popen

    def popen(*arguments, **more):
        started.append(real(*arguments, stdin=subprocess.PIPE, **more))
        return started[-1]

    monkeypatch.setattr(kubernetes.subprocess, "Popen", popen)
    monkeypatch.setattr(Warden, "look", lambda warden: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        kubernetes.run_worker("classgan", 120)
    assert started[0].poll() is not None
