"""`classgan kubernetes …`: a pool of pods beside the students' machines."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from deployments.cli.options import JsonOption
from deployments.cli.output import console, print_json, say, show
from deployments.cli.tables import Listing
from deployments.kubernetes.pods import Fate, Pod, gone, summary
from gan_core.errors import StackError
from gan_core.units import counted

commands = typer.Typer(no_args_is_help=True, help="Let pods of a Kubernetes cluster compute for the class.")
ImageOption = Annotated[str, typer.Option(help="Image made with deployments/kubernetes/Dockerfile, with its tag.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the class in the cluster.")]
GpusOption = Annotated[int | None, typer.Option(min=0, max=1, help="GPUs of a pod. Default: 1.")]


@commands.command("status")
def kubernetes_status(
    training: Annotated[str, typer.Argument(help="Name of a training. Default: all.")] = "",
    namespace: NamespaceOption = "classgan",
    as_json: JsonOption = False,
) -> None:
    """Show every pod, with the reason why it waits, is stuck or has failed; and a summary of each training's pods."""
    print_status(training, namespace, as_json)


@commands.command("template")
def kubernetes_template(image: ImageOption = "", gpus: GpusOption = None) -> None:
    """Print the work pool's base job template, in Prefect's format."""
    print_template(image, gpus)


@commands.command("manifests")
def kubernetes_manifests(
    image: ImageOption,
    namespace: NamespaceOption = "classgan",
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", help="Part to print: access, worker or joined; may be repeated. Default: access."),
    ] = None,
) -> None:
    """Print manifests for `kubectl apply -f -`: rights and quota, the Prefect worker, pods that join like laptops."""
    print_manifests(image, namespace, parts or ["access"])


@commands.command("pool")
def kubernetes_pool(
    image: ImageOption,
    namespace: NamespaceOption = "classgan",
    gpus: GpusOption = None,
    shifts: Annotated[int, typer.Option(min=1, max=1000, help="Most pods at the same time, over all trainings.")] = 8,
) -> None:
    """Make or change the work pool of pods for the class that runs here. May be repeated."""
    make_pool(image, namespace, gpus, shifts)


@commands.command("worker")
def kubernetes_worker(
    namespace: NamespaceOption = "classgan",
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds that a pod may be stuck before its run is ended.")
    ] = 120,
) -> None:
    """Start the pool's pods until Ctrl-C. If a pod can't go on, end its run and say why."""
    run_worker(namespace, patience)


POOL = "kubernetes"
SHIFT = "shift-kubernetes"
COLOURS = {Fate.RUNNING: "green", Fate.DONE: "dim", Fate.WAITING: "yellow", Fate.STUCK: "red", Fate.FAILED: "red"}
LOOK_SECONDS = 5.0  # between two looks at the pods


def print_template(image: str, gpus: int | None) -> None:
    """The base job template as JSON: what `prefect work-pool create --base-job-template` takes."""
    from deployments.kubernetes.files import base_job_template

    print(json.dumps(base_job_template(image=image or None, gpus=gpus), indent=2))


def print_manifests(image: str, namespace: str, parts: list[str]) -> None:
    """Manifests as YAML, for `kubectl apply -f -`.

    Raises:
        StackError: there is no such part.
    """
    import yaml

    from deployments.kubernetes.files import PARTS, manifest

    if unknown := sorted(set(parts) - set(PARTS)):
        raise StackError(f"There are no manifests called {', '.join(unknown)}. There are: {', '.join(PARTS)}.")
    found = [item for part in PARTS if part in parts for item in manifest(part, image, namespace)]
    yaml.safe_dump_all(found, sys.stdout, sort_keys=False)


def make_pool(image: str, namespace: str, gpus: int | None, shifts: int) -> None:
    """Make the work pool and its deployment in the class that runs, or bring them up to date."""
    from deployments.kubernetes.files import base_job_template
    from deployments.prefect_api import PrefectApi

    api, template = PrefectApi(_reach()), base_job_template(image=image, namespace=namespace, gpus=gpus)
    facts = {"base_job_template": template, "concurrency_limit": shifts}
    if api("POST", "/work_pools/", {"name": POOL, "type": "kubernetes", **facts}) is None:
        api("PATCH", f"/work_pools/{POOL}", facts)
    shift = api("GET", "/deployments/name/gradient-compute/shift")
    same = ("flow_id", "entrypoint", "parameter_openapi_schema", "enforce_parameter_schema", "tags")
    deployment = {
        "name": SHIFT,
        "work_pool_name": POOL,
        "pull_steps": [],
        "description": "One shift in a pod. A training whose plan has `cluster_shifts` keeps so many of these running.",
        **{name: shift[name] for name in same},
    }
    api("POST", "/deployments/", deployment)
    console.print(
        f"The class has a pool [bold]{POOL}[/bold] of at most {counted(shifts, 'pod')} at once, from {escape(image)}. "
        "Start its worker: classgan kubernetes worker. Ask for pods: classgan change NAME --set cluster_shifts=4",
        soft_wrap=True,
    )


def run_worker(namespace: str, patience: float) -> None:
    """Run Prefect's Kubernetes worker until Ctrl-C, and beside it the warden. Pods that run go on without them.

    Raises:
        StackError: there is no class here, or the worker ended by itself.
    """
    from deployments.kubernetes.warden import Warden
    from deployments.prefect_api import PrefectApi
    from deployments.prefect_settings import CLIENT, PREFECT, clean_environment
    from gan_core.settings import settings

    reach, home = _reach(), settings().home.resolve() / "kubernetes"
    home.mkdir(parents=True, exist_ok=True)
    environment = {
        **clean_environment(),
        **CLIENT,
        **reach,
        "PREFECT_HOME": str(home),
        # Only this namespace is watched: the whole cluster's would need a right on all of it.
        "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES": namespace,
    }
    command = [*PREFECT, "worker", "start", "--pool", POOL, "--type", "kubernetes", "--name", POOL]
    warden = Warden(PrefectApi(reach), namespace, patience, lambda text: console.print(escape(text), soft_wrap=True))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    worker = subprocess.Popen([*command, "--no-create-pool-if-not-found"], env=environment, cwd=home)
    try:
        while worker.poll() is None:
            warden.look()
            _wait(worker, min(LOOK_SECONDS, max(1.0, patience)))
    except KeyboardInterrupt:
        return
    finally:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            worker.wait()
    raise StackError(f"Prefect's Kubernetes worker has ended with exit code {worker.returncode}; it said why above.")


def print_status(training: str, namespace: str, as_json: bool = False) -> None:
    """Every pod with its reason, and each training's in one sentence.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    from deployments.kubernetes import cluster

    pods = cluster.pods(namespace, training)
    pods += [pod for pod in gone(_ended_runs(), pods) if training in ("", pod.training)]
    by_training: dict[str, list[Pod]] = {}
    for pod in pods:
        by_training.setdefault(pod.training, []).append(pod)
    told = {name: summary(name, of_training) for name, of_training in by_training.items()}
    if as_json:
        print_json({"pods": pods, "trainings": [{"name": name, "summary": text} for name, text in told.items()]})
        return
    table = Listing("pod", "training", "rank", "state", "why", folds=["why"], spare=["rank"])
    for pod in pods:
        table.add(pod.name, pod.training, pod.rank, Text(pod.fate, COLOURS[pod.fate]), pod.reason)
    if pods:
        show(table)
    else:
        console.print("No pods. A training asks for them: classgan change NAME --set cluster_shifts=4")
    for text in told.values():
        say(escape(text))


def _ended_runs() -> list[Mapping[str, Any]]:
    """The newest runs of pods' shifts that have ended, as Prefect knows them; none if no class can be asked."""
    from deployments.prefect_api import PrefectApi

    try:
        api = PrefectApi(_reach())
        ended = {"state": {"type": {"any_": ["CRASHED", "FAILED", "CANCELLED"]}}}
        wanted = {"deployments": {"name": {"any_": [SHIFT]}}, "flow_runs": ended, "sort": "END_TIME_DESC", "limit": 20}
        return api("POST", "/flow_runs/filter", wanted)
    except (StackError, OSError):
        return []


def _reach() -> dict[str, str]:
    """How to speak to Prefect as the instructor: of the class that runs here, else of the one that the environment names.

    Raises:
        StackError: there is neither.
    """
    from deployments.local.stack import LocalStack
    from deployments.prefect_settings import REACH, given_reach
    from gan_core.settings import settings

    try:
        known = LocalStack(settings().home, settings().outputs).attach().reach()
    except StackError:
        if given := given_reach():
            return given
        raise
    return {name: known[name] for name in REACH if name in known}


def _wait(worker: "subprocess.Popen[bytes]", seconds: float) -> None:
    try:
        worker.wait(seconds)
    except subprocess.TimeoutExpired:
        return
