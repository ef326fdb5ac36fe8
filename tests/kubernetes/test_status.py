"""`classgan kubernetes status` in front of a cluster that answers, refuses, is away, or isn't there."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kubernetes import TOKEN, Cluster, fake_kubernetes
from kubernetes_asyncio.config import kube_config

from deployments.cli.server import kubernetes
from deployments.kubernetes.files import base_job_template
from gan_core.errors import ClusterError, StackError

IMAGE = "registry.example.edu/classgan:0.1.0"


@pytest.fixture
def kubeconfig(tmp_path, monkeypatch) -> Path:
    """The file that is asked for clusters; what this machine itself belongs to is never asked."""
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path / "kubeconfig"


@pytest.fixture
def cluster(kubeconfig, monkeypatch) -> Iterator[Cluster]:
    """No class runs beside it, so Prefect isn't asked."""
    monkeypatch.setattr(kubernetes, "_reach", lambda: (_ for _ in ()).throw(StackError("No class runs here.")))
    with fake_kubernetes(kubeconfig) as cluster:
        yield cluster


def make(cluster: Cluster, training: str, rank: str) -> str:
    """A Job of the pool's template, with its pod; returns its run's id."""
    job, run = copy.deepcopy(base_job_template()["job_configuration"]["job_manifest"]), f"run of {training} {rank}"
    labels = {"classgan/training": training, "classgan/rank": rank, "prefect.io/flow-run-id": run}
    job["metadata"] = {"namespace": "classgan", "generateName": f"{training}-{rank}-", "labels": labels}
    job["spec"]["template"]["metadata"]["labels"] = labels
    cluster.create_job(job)
    return run


def test_every_pod_has_its_reason_and_each_training_its_sentence(cluster, capsys, monkeypatch):
    monkeypatch.setattr(kubernetes.console, "width", 250)
    cluster.status(make(cluster, "faces", "0"), "Running")
    waiting = {"reason": "ErrImagePull", "message": "not found [bold]"}
    cluster.status(
        make(cluster, "faces", "1"), "Pending", containerStatuses=[{"image": IMAGE, "state": {"waiting": waiting}}]
    )
    full = make(cluster, "digits", "2")
    cluster.warn("Job", cluster.job_of(full)["metadata"]["name"], "FailedCreate", "exceeded quota: classgan")
    del cluster.objects["pods"][cluster.pod_of(full)["metadata"]["name"]]
    kubernetes.print_status("", "classgan")
    shown = capsys.readouterr().out
    assert "It works on node-7" in shown
    assert f"{IMAGE!r} can't be pulled" in shown
    assert "not found [bold]" in shown  # what a cluster says is text, not markup
    assert "exceeded quota" in shown
    assert "digits is stuck in the cluster: 1 pod, 1 stuck." in shown
    assert "faces runs in the cluster: 2 pods, 1 stuck, 1 running." in shown
    kubernetes.print_status("digits", "classgan")
    assert "faces" not in capsys.readouterr().out
    kubernetes.print_status("digits", "classgan", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [(pod["training"], pod["rank"], pod["fate"]) for pod in told["pods"]] == [("digits", "2", "stuck")]
    assert told["trainings"] == [{"name": "digits", "summary": "digits is stuck in the cluster: 1 pod, 1 stuck."}]


def test_without_pods_it_says_how_to_get_some(cluster, capsys):
    kubernetes.print_status("", "classgan")
    assert "cluster_shifts" in capsys.readouterr().out


def test_a_cluster_that_refuses_is_a_sentence(cluster, kubeconfig):
    kubeconfig.write_text(kubeconfig.read_text(encoding="utf-8").replace(TOKEN, "another"), encoding="utf-8")
    with pytest.raises(ClusterError, match=r"The cluster refuses \(401: Unauthorized\)"):
        kubernetes.print_status("", "classgan")


def test_another_namespace_is_refused_too(cluster):
    with pytest.raises(ClusterError, match=r"The cluster refuses \(403: .*access.yaml"):
        kubernetes.print_status("", "kube-system")


def test_a_cluster_that_is_away_is_a_sentence(kubeconfig):
    with fake_kubernetes(kubeconfig):
        pass
    with pytest.raises(ClusterError, match="doesn't answer"):
        kubernetes.print_status("", "classgan")


def test_no_cluster_at_all_is_a_sentence(kubeconfig):
    with pytest.raises(ClusterError, match="No cluster is configured here"):
        kubernetes.print_status("", "classgan")


def test_manifests_that_do_not_exist_are_refused():
    with pytest.raises(StackError, match="no manifests called workers"):
        kubernetes.print_manifests(IMAGE, "classgan", ["workers"])
