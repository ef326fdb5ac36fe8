"""`classgan kubernetes …`: pods of a cluster beside the students' machines."""

from typing import Annotated

import typer

kubernetes = typer.Typer(no_args_is_help=True, help="Let pods of a Kubernetes cluster compute for the class.")

ImageOption = Annotated[str, typer.Option(help="Image made with deployments/kubernetes/Dockerfile, with its tag.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the class in the cluster.")]
GpusOption = Annotated[int | None, typer.Option(min=0, max=1, help="GPUs of a pod; 1, if left out.")]


@kubernetes.command("status")
def kubernetes_status(
    training: Annotated[str, typer.Argument(help="Name of a training; all, if left out.")] = "",
    namespace: NamespaceOption = "classgan",
) -> None:
    """Every pod, with the reason if it waits, is stuck or has failed, and each training's pods in one sentence."""
    from deployments.commands.kubernetes import print_status

    print_status(training, namespace)


@kubernetes.command("template")
def kubernetes_template(image: ImageOption = "", gpus: GpusOption = None) -> None:
    """Print the work pool's base job template, as Prefect takes it."""
    from deployments.commands.kubernetes import print_template

    print_template(image, gpus)


@kubernetes.command("manifests")
def kubernetes_manifests(
    image: ImageOption,
    namespace: NamespaceOption = "classgan",
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", help="Only this: access, worker or joined; may be repeated. Left out: access."),
    ] = None,
) -> None:
    """Print manifests for `kubectl apply -f -`: rights and quota, the Prefect worker, pods that join like laptops."""
    from deployments.commands.kubernetes import print_manifests

    print_manifests(image, namespace, parts or ["access"])


@kubernetes.command("pool")
def kubernetes_pool(
    image: ImageOption,
    namespace: NamespaceOption = "classgan",
    gpus: GpusOption = None,
    shifts: Annotated[int, typer.Option(min=1, max=1000, help="Pods at once, of all trainings together.")] = 8,
) -> None:
    """Give the class that runs here a work pool of pods, or change it. May be repeated."""
    from deployments.commands.kubernetes import make_pool

    make_pool(image, namespace, gpus, shifts)


@kubernetes.command("worker")
def kubernetes_worker(
    namespace: NamespaceOption = "classgan",
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds that a pod may be stuck before its run is ended with the reason.")
    ] = 120,
) -> None:
    """Start the pool's pods, and end their runs with the reason if they can't go on; until Ctrl-C."""
    from deployments.commands.kubernetes import run_worker

    run_worker(namespace, patience)
