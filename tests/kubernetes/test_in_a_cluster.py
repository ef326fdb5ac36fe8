"""Prefect's own Kubernetes worker, started as the instructor does, against a stand-in for a cluster and a real class server.

What no node here can do is set by the tests, in the words that Kubernetes uses. docs/kubernetes.md says what that leaves untried.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from fake_kubernetes import Cluster, fake_kubernetes
from gated import SECRETS, Gate
from poll import wait_until
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from deployments.prefect_settings import ENTRYPOINT, job_template
from tasks.background.supply_pods import top_up_pods

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

IMAGE = "registry.example.edu/classgan:0.1.0"


class School:
    """A class server, a cluster, the pool's worker between them."""

    def __init__(self, gate: Gate, cluster: Cluster, folder: Path) -> None:
        self.gate, self.cluster, self.folder = gate, cluster, folder
        self.worker: subprocess.Popen[bytes] | None = None

    def environment(self) -> dict[str, str]:
        """The instructor's, in a folder where no class runs, with the cluster's configuration."""
        known = self.gate.client_environment("instructor", KUBECONFIG=str(self.folder / "kubeconfig"), COLUMNS="250")
        known = {k: v for k, v in known.items() if not k.startswith("KUBERNETES_")}  # never a real cluster
        return {**known, "CLASSGAN_HOME": str(self.folder), "PREFECT_SERVER_API_AUTH_STRING": "an-inner-secret"}

    def classgan(self, *words: str) -> str:
        command = [sys.executable, "-P", "-m", "deployments.cli", *words]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_worker(self) -> None:
        command = [sys.executable, "-P", "-m", "deployments.cli", "kubernetes", "worker", "--patience", "1"]
        with (self.folder / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(
                command, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )
        said = self.folder / "worker.log"
        wait_until(
            lambda: "Worker 'kubernetes' started!" in said.read_text(encoding="utf-8"),
            120,
            f"the pool's worker; see {said}",
        )

    def stop_worker(self) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGTERM)
            self.worker.wait(30)

    def run(self, training: str, rank: str = "0") -> str:
        """A shift that the cluster's worker has made into a Job with a pod; returns its run's id."""
        deployment = self.gate.ask("GET", "/deployments/name/gradient-compute/shift-kubernetes")["id"]
        wanted = {"state": {"type": "SCHEDULED"}, "job_variables": {"training": training, "rank": rank}}
        run = self.gate.ask("POST", f"/deployments/{deployment}/create_flow_run", wanted)["id"]
        # Prefect's worker notes that the pod is pending. It looks at the run, then writes: what happens to the run in between
        # is overwritten, even a crash. No node starts a pod that fast; a test would.
        wait_until(lambda: self.is_noted(run), 30, f"the pod of {training}; see {self.folder / 'worker.log'}")
        return run

    def is_noted(self, run: str) -> bool:
        return self.gate.ask("GET", f"/flow_runs/{run}")["state"]["name"] == "InfrastructurePending"

    def state(self, run: str) -> tuple[str, str]:
        state = self.gate.ask("GET", f"/flow_runs/{run}")["state"]
        return state["type"], state["message"] or ""

    def begin(self, run: str) -> None:
        """As the pod's process does, with the login of its invite."""
        answer = self.gate.call("cluster", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "RUNNING"}})
        assert answer.json()["status"] == "ACCEPT", answer.text
        self.cluster.status(run, "Running")

    def await_crash(self, run: str, *words: str) -> None:
        def has_crashed() -> bool:
            kind, message = self.state(run)
            return kind == "CRASHED" and all(word in message for word in words)

        wait_until(has_crashed, 30, f"a crash with {words}; see {self.folder / 'worker.log'}")


@pytest.fixture(scope="module")
def school(
    tmp_path_factory: pytest.TempPathFactory, prefects_records: Callable[[], dict[str, str]]
) -> Iterator[School]:
    SECRETS["cluster"] = "the-secret-of-the-cluster"
    folder = tmp_path_factory.mktemp("cluster")
    gate = Gate(folder, **prefects_records())
    gate.admit("cluster", "ada")
    with fake_kubernetes(folder / "kubeconfig") as cluster:
        school = School(gate, cluster, folder)
        try:
            gate.start()
            template = job_template("gan-student")
            gate.ask("POST", "/work_pools/", {"name": "students", "type": "gan-student", "base_job_template": template})
            flow = gate.ask("POST", "/flows/", {"name": "gradient-compute"})["id"]
            shift = {"name": "shift", "flow_id": flow, "entrypoint": ENTRYPOINT, "work_pool_name": "students"}
            gate.ask("POST", "/deployments/", shift)  # as `prefect deploy` does, which takes seconds
            school.classgan("kubernetes", "pool", "--image", IMAGE)
            school.start_worker()
            yield school
            assert cluster.refused == []
        finally:
            school.stop_worker()
            gate.stop()
            del SECRETS["cluster"]


def container_of(found: dict[str, Any]) -> dict[str, Any]:
    [container] = found["spec"]["template"]["spec"]["containers"]
    return container


def test_a_shift_becomes_a_job_that_kubernetes_would_take(school):
    run = school.run("digits", "3")
    job = school.cluster.job_of(run)
    container, labels = container_of(job), job["metadata"]["labels"]
    assert job["metadata"]["name"].startswith("digits-3-")
    assert school.cluster.pod_of(run)["metadata"]["name"].startswith("digits-3-")
    assert (labels["classgan/training"], labels["classgan/rank"]) == ("digits", "3")
    assert container["image"] == IMAGE
    assert container["args"][-4:] == ["deployments.kubernetes.pod", "shift", "$(PREFECT__FLOW_RUN_ID)", "3"]
    assert {"name": "PREFECT__FLOW_RUN_ID", "value": run} in container["env"]
    assert container["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": 1}
    sent = {k: v for k, v in job.items() if k != "status"}
    pod = sent["spec"]["template"]["spec"]
    # Prefect insists on two fields at a place where Kubernetes has none; its API server drops them with a warning.
    sent["spec"]["template"]["spec"] = {k: v for k, v in pod.items() if k not in ("parallelism", "completions")}
    kubernetes_validate.validate(sent, "1.34", strict=True)
    school.begin(run)
    school.gate.call("cluster", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "COMPLETED"}})
    school.cluster.status(run, "Succeeded")
    assert school.state(run)[0] == "COMPLETED"


def test_no_secret_of_the_worker_reaches_a_job(school):
    """The worker has the instructor's login; Prefect would copy it, and more, into every job."""
    text = str(school.cluster.job_of(school.run("secrets", "8")))
    assert "PREFECT__FLOW_RUN_ID" in text
    for secret in (SECRETS["instructor"], "an-inner-secret", "PREFECT_API_AUTH_STRING", "PREFECT_API_URL"):
        assert secret not in text


def test_a_pod_that_fails_crashes_its_run_with_its_last_words(school):
    run = school.run("digits", "0")
    ended = {"exitCode": 1, "reason": "Error", "message": "a line before\nclassgan: This invite is damaged."}
    school.cluster.status(run, "Failed", containerStatuses=[{"name": "prefect-job", "state": {"terminated": ended}}])
    school.await_crash(run, "exit code 1", "This invite is damaged")


def test_an_image_that_can_not_be_pulled_ends_the_run_and_its_job(school):
    run = school.run("faces", "1")
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "classgan:0.1.0": not found'}
    pulling = [{"name": "prefect-job", "image": IMAGE, "state": {"waiting": waiting}}]
    school.cluster.status(run, "Pending", containerStatuses=pulling)
    school.await_crash(run, f"{IMAGE!r} can't be pulled", "not found")
    wait_until(lambda: school.cluster.job_of(run) is None, 20, "the end of its Job")


def test_a_pod_that_waits_for_a_gpu_is_left_alone_and_says_so(school):
    run = school.run("faces", "2")
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available."
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    school.cluster.status(run, "Pending", conditions=[unschedulable])
    status = school.classgan("kubernetes", "status")
    assert "No node has a GPU free for it" in status
    assert school.state(run)[0] == "PENDING"
    school.cluster.status(run, "Pending")
    school.begin(run)


def test_an_evicted_pod_crashes_its_run_with_the_reason(school):
    run = school.run("digits", "4")
    school.begin(run)
    school.cluster.status(run, "Failed", reason="Evicted", message="The node was low on resource: memory.")
    school.await_crash(run, "evicted from node-7", "low on resource: memory")


def test_a_deleted_pod_crashes_its_run_with_the_reason(school):
    run = school.run("digits", "5")
    school.begin(run)
    school.cluster.delete_pod(run)
    school.await_crash(run, "deleted")


def test_a_deleted_job_crashes_its_run_with_the_reason(school):
    run = school.run("gone", "6")
    school.begin(run)
    school.cluster.delete_job(school.cluster.job_of(run)["metadata"]["name"])
    school.await_crash(run, "Kubernetes job was deleted")
    status = school.classgan("kubernetes", "status", "gone")
    assert "Kubernetes job was deleted" in status
    assert "gone is idle in the cluster: 1 pod, 1 failed" in status


@pytest.mark.parametrize(("said", "becomes"), [("CANCELLING", "CANCELLED"), ("CRASHED", "CRASHED")])
def test_a_run_that_is_over_for_prefect_loses_its_pod(school, said, becomes):
    """Cancelled in the UI, or declared crashed when the class was started anew: Prefect itself would let the pod work on."""
    run = school.run("over", "10" if said == "CRASHED" else "11")
    school.begin(run)
    school.gate.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": said}, "force": True})
    wait_until(lambda: school.cluster.job_of(run) is None, 30, "the end of its Job")
    wait_until(lambda: school.state(run)[0] == becomes, 10, f"the run as {becomes}")


def test_a_training_gets_the_pods_that_its_plan_asks_for_and_no_rank_twice(school):
    def of(training: str) -> list[str]:
        found = school.cluster.listed("jobs", "")["items"]
        labels = [job["metadata"]["labels"] for job in found if not job["status"]]
        return sorted(found["classgan/rank"] for found in labels if found["classgan/training"] == training)

    reach = {PREFECT_API_URL: f"{school.gate.url}/api", PREFECT_API_AUTH_STRING: f"instructor:{SECRETS['instructor']}"}
    with temporary_settings(reach), get_client(sync_client=True) as client:
        assert top_up_pods(client, "alpha", 2) == 2
        assert top_up_pods(client, "alpha", 2) == 0
        assert top_up_pods(client, "beta", 1) == 1
        wait_until(lambda: len(of("alpha") + of("beta")) == 3, 30, "three pods")
        assert len({*of("alpha"), *of("beta")}) == 3
        top_up_pods(client, "alpha", 0)
        top_up_pods(client, "beta", 0)
        wait_until(lambda: not of("alpha") and not of("beta"), 30, "the end of pods that nobody needs")


def test_a_pods_run_belongs_to_the_clusters_login_alone(school):
    run = school.run("digits", "7")
    assert school.gate.call("ada", "GET", f"/flow_runs/{run}").status_code == 403
    stolen = school.gate.call("ada", "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "COMPLETED"}})
    assert stolen.status_code == 403
    assert school.gate.call("cluster", "GET", f"/flow_runs/{run}").status_code == 200
    deployment = school.gate.ask("GET", "/deployments/name/gradient-compute/shift-kubernetes")["id"]
    waiting = school.gate.ask(
        "POST",
        f"/deployments/{deployment}/create_flow_run",
        {"state": {"type": "SCHEDULED", "state_details": {"scheduled_time": "2100-01-01T00:00:00Z"}}},
    )["id"]
    for login in ("ada", "cluster"):
        taken = school.gate.call(login, "POST", f"/flow_runs/{waiting}/set_state", {"state": {"type": "PENDING"}})
        assert taken.json()["status"] == "ABORT"
    school.gate.end(waiting)


def test_the_rights_of_the_manifests_were_all_it_needed(school):
    """The stand-in refuses what the Role in access.yaml doesn't allow; the fixture looks again at the end."""
    school.run("rights", "9")
    assert {("create", "jobs"), ("watch", "jobs"), ("watch", "pods")} <= school.cluster.asked
    assert school.cluster.refused == []
