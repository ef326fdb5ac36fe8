"""A small stand-in for a Kubernetes cluster: the API that the worker speaks to, and what a cluster does behind it.

It keeps Jobs and pods, streams watches, makes a pod for each Job as the Job controller does, and refuses whatever the class's
own Role doesn't allow. What nodes would do, tests do: `status`, `evict`, `delete_pod`.
"""

import copy
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from deployments.kubernetes.files import manifest

NAMESPACE, TOKEN = "classgan", "the-token-of-the-service-account"
KINDS = {"jobs": ("Job", "batch/v1"), "pods": ("Pod", "v1"), "events": ("Event", "v1")}
DISCOVERY: dict[str, Any] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "groups": [{"name": "batch", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}],
    },
}
VERBS = ["create", "delete", "get", "list", "watch"]


def _resources(*kinds: tuple[str, str, bool]) -> dict[str, Any]:
    named = [{"name": n, "singularName": "", "kind": k, "namespaced": inside, "verbs": VERBS} for n, k, inside in kinds]
    return {"kind": "APIResourceList", "resources": named}


DISCOVERY["/api/v1"] = _resources(("pods", "Pod", True), ("events", "Event", True), ("namespaces", "Namespace", False))
DISCOVERY["/apis/batch/v1"] = _resources(("jobs", "Job", True))


class Cluster:
    """The state of the cluster, and what tests do to it."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.refused: list[tuple[str, str]] = []  # (verb, resource) that the Role doesn't allow
        self.asked: set[tuple[str, str]] = set()
        self._history: list[tuple[int, str, str, dict[str, Any]]] = []  # (version, kind, what, object)
        self._changed = (
            threading.Condition()
        )  # held by whoever reads or changes objects: each request has its own thread
        self.is_up = True
        role = next(item for item in manifest("access", "") if item["kind"] == "Role")
        self._allowed = {(verb, what) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}

    # What a cluster does

    def allows(self, verb: str, resource: str) -> bool:
        self.asked.add((verb, resource))
        if (verb, resource) not in self._allowed:
            self.refused.append((verb, resource))
        return (verb, resource) in self._allowed

    def create_job(self, job: dict[str, Any]) -> dict[str, Any]:
        """As the API server and the Job controller: a name, an id, and a pod."""
        job = copy.deepcopy(job)
        meta = job["metadata"]
        meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
        job["status"] = {}
        self._put("jobs", job, "ADDED")
        template = copy.deepcopy(job["spec"]["template"])
        labels = {**template["metadata"]["labels"], "job-name": meta["name"]}
        pod_meta = {**template["metadata"], "name": f"{meta['name']}-{uuid.uuid4().hex[:5]}", "labels": labels}
        pod = {"metadata": {**pod_meta, "namespace": meta["namespace"]}, "spec": template["spec"]}
        self._put("pods", {**pod, "status": {"phase": "Pending"}}, "ADDED")
        return job

    def delete_job(self, name: str) -> dict[str, Any] | None:
        with self._changed:
            job = self.objects["jobs"].get(name)
            if job is not None:
                self._remove("jobs", name)
                for pod in [p for p in self.objects["pods"].values() if p["metadata"]["labels"]["job-name"] == name]:
                    self._remove("pods", pod["metadata"]["name"])
            return job

    # What nodes and people do

    def job_of(self, run: str) -> dict[str, Any] | None:
        return self._of("jobs", run)

    def pod_of(self, run: str) -> dict[str, Any] | None:
        return self._of("pods", run)

    def _of(self, kind: str, run: str) -> dict[str, Any] | None:
        with self._changed:
            found = self.objects[kind].values()
            return next((o for o in found if o["metadata"]["labels"]["prefect.io/flow-run-id"] == run), None)

    def status(self, run: str, phase: str, **status: Any) -> None:
        """Give the run's pod this status; a Job follows its pod."""
        with self._changed:
            pod = self.pod_of(run)
            assert pod is not None
            pod["status"] = {"phase": phase, **status}
            pod["spec"]["nodeName"] = "node-7"
            self._put("pods", pod, "MODIFIED")
            if phase in ("Failed", "Succeeded"):
                self._end_job(pod["metadata"]["labels"]["job-name"], phase)

    def delete_pod(self, run: str) -> None:
        """As `kubectl delete pod`: the pod is gone, and its Job counts it as failed."""
        with self._changed:
            pod = self.pod_of(run)
            assert pod is not None
            self._remove("pods", pod["metadata"]["name"])
            self._end_job(pod["metadata"]["labels"]["job-name"], "Failed")

    def warn(self, kind: str, name: str, reason: str, message: str) -> None:
        involved = {"kind": kind, "name": name, "namespace": NAMESPACE}
        meta = {"name": f"{name}.{uuid.uuid4().hex[:8]}", "namespace": NAMESPACE}
        self._put(
            "events",
            {"metadata": meta, "involvedObject": involved, "type": "Warning", "reason": reason, "message": message},
            "ADDED",
        )

    def _end_job(self, name: str, phase: str) -> None:
        job = self.objects["jobs"][name]
        job["status"] = {
            "Failed": {
                "failed": 1,
                "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}],
            },
            "Succeeded": {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]},
        }[phase]
        self._put("jobs", job, "MODIFIED")

    def _put(self, kind: str, found: dict[str, Any], what: str) -> None:
        with self._changed:
            meta = found["metadata"]
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
            meta["resourceVersion"] = str(self.version + 1)
            found["kind"], found["apiVersion"] = KINDS[kind]
            self.objects[kind][meta["name"]] = found
            self._note(kind, what, found)

    def _remove(self, kind: str, name: str) -> None:
        with self._changed:
            self._note(kind, "DELETED", self.objects[kind].pop(name))

    def _note(self, kind: str, what: str, found: dict[str, Any]) -> None:
        self._history.append((self.version + 1, kind, what, copy.deepcopy(found)))
        self._changed.notify_all()

    # What the API reads

    @property
    def version(self) -> int:
        return len(self._history)

    def named(self, kind: str, name: str) -> dict[str, Any] | None:
        with self._changed:
            return copy.deepcopy(self.objects[kind].get(name))

    def listed(self, kind: str, selector: str) -> dict[str, Any]:
        with self._changed:
            items = [copy.deepcopy(o) for o in self.objects[kind].values() if matches(o, selector)]
            name, group = KINDS[kind]
            return {
                "kind": f"{name}List",
                "apiVersion": group,
                "metadata": {"resourceVersion": str(self.version)},
                "items": items,
            }

    def watched(self, kind: str, selector: str, since: int) -> Iterator[dict[str, Any]]:
        """Changes after a version, as they come."""
        while self.is_up:
            with self._changed:
                if self.version == since:
                    self._changed.wait(0.5)
                new, since = self._history[since:], self.version
            for _, of_kind, what, found in new:
                if of_kind == kind and matches(found, selector):
                    yield {"type": what, "object": found}

    def stop(self) -> None:
        with self._changed:
            self.is_up = False
            self._changed.notify_all()


def matches(found: dict[str, Any], selector: str) -> bool:
    """`name=value` and `name`, by comma."""
    labels = found["metadata"].get("labels") or {}
    wanted = [part.partition("=") for part in selector.split(",") if part]
    return all(name in labels and value in ("", labels[name]) for name, _, value in wanted)


class Api(BaseHTTPRequestHandler):
    """HTTP in front of a Cluster."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        if path in DISCOVERY:
            return self._answer(200, DISCOVERY[path])
        resource, name, sub = self._parts(path)
        verb = "get" if name else "watch" if query.get("watch") else "list"
        if not self._may(verb, f"{resource}/{sub}" if sub else resource):
            return None
        selector = query.get("labelSelector", "")
        if sub == "log":
            return self._answer(200, "Traceback: no module named torch\n", "text/plain")
        if name:
            found = self.cluster.named(resource, name)
            return self._answer(200, found) if found else self._refuse(404, f'{resource} "{name}" not found')
        if verb == "list":
            return self._answer(200, self.cluster.listed(resource, selector))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for change in self.cluster.watched(resource, selector, int(query.get("resourceVersion") or 0)):
                self.wfile.write(json.dumps(change).encode() + b"\n")
                self.wfile.flush()
        except OSError:
            pass  # nobody listens any more
        return None

    def do_POST(self) -> None:
        resource, _, _ = self._parts(urlsplit(self.path).path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._may("create", resource):
            self._answer(201, self.cluster.create_job(body))

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        resource, name, _ = self._parts(urlsplit(self.path).path)
        if self._may("delete", resource):
            found = self.cluster.delete_job(name)
            self._answer(200, found) if found else self._refuse(404, f'{resource} "{name}" not found')

    def _parts(self, path: str) -> tuple[str, str, str]:
        """Resource, name and subresource; another namespace, or none, is a resource that nobody may see."""
        _, found, rest = path.partition(f"/namespaces/{NAMESPACE}/")
        words = [*rest.split("/"), "", ""] if found else [path, "", ""]
        return words[0], words[1], words[2]

    def _may(self, verb: str, resource: str) -> bool:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "Unauthorized")
            return False
        if not self.cluster.allows(verb, resource):
            self._refuse(403, f"the service account may not {verb} {resource}")
            return False
        return True

    def _refuse(self, code: int, message: str) -> None:
        self._answer(code, {"kind": "Status", "status": "Failure", "code": code, "message": message})

    def _answer(self, code: int, content: Any, kind: str = "application/json") -> None:
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def fake_kubernetes(kubeconfig: Path) -> Iterator[Cluster]:
    """A cluster whose API answers on this machine; the file lets clients in."""
    cluster = Cluster()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundApi", (Api,), {"cluster": cluster}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "worker", "namespace": NAMESPACE}}],
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "worker", "user": {"token": TOKEN}}],
    }
    kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    try:
        yield cluster
    finally:
        cluster.stop()
        server.shutdown()
        server.server_close()
