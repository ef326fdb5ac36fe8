"""The cluster as the class sees it: its Jobs and pods, read from the Kubernetes API; a Job deleted."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, BatchV1Api, CoreV1Api
from kubernetes_asyncio.client.exceptions import ApiException

from deployments.kubernetes.pods import TRAINING, Pod, read
from gan_core.errors import ClusterError

PATIENCE = 20  # seconds for each question


def pods(namespace: str, training: str = "") -> list[Pod]:
    """The class's shifts in this namespace; only those of one training if it is named.

    Raises:
        ClusterError: no cluster is configured, it doesn't answer, or it refuses.
    """
    return asyncio.run(_pods(namespace, f"{TRAINING}={training}" if training else TRAINING))


def delete(namespace: str, jobs: Iterable[str]) -> None:
    """Delete these Jobs with their pods; those that are gone already are no error.

    Raises:
        ClusterError: as above.
    """
    asyncio.run(_delete(namespace, jobs))


async def _pods(namespace: str, selector: str) -> list[Pod]:
    async with _client() as client:
        core, batch = CoreV1Api(client), BatchV1Api(client)
        jobs = await _items(batch.list_namespaced_job, namespace, label_selector=selector)
        found = await _items(core.list_namespaced_pod, namespace, label_selector=selector)
        events = await _items(core.list_namespaced_event, namespace, field_selector="type=Warning")
    return read(jobs, found, events)


async def _delete(namespace: str, jobs: Iterable[str]) -> None:
    async with _client() as client:
        for job in jobs:
            try:
                await BatchV1Api(client).delete_namespaced_job(
                    job, namespace, propagation_policy="Background", _request_timeout=PATIENCE
                )
            except ApiException as exc:
                if exc.status != 404:
                    raise


async def _items(ask: Any, namespace: str, **which: str) -> list[Any]:
    answer = await ask(namespace, _preload_content=False, _request_timeout=PATIENCE, **which)
    if answer.status >= 400:
        refused = ApiException(answer.status, answer.reason)
        refused.body = await answer.read()
        raise refused
    return json.loads(await answer.read())["items"]


@asynccontextmanager
async def _client() -> AsyncGenerator[ApiClient]:
    """Inside a cluster its service account, elsewhere what `kubectl` uses."""
    try:
        try:
            config.load_incluster_config()
        except config.ConfigException:
            await config.load_kube_config()
        async with ApiClient() as client:
            yield client
    except config.ConfigException as exc:
        raise ClusterError(
            f"No cluster is configured here ({exc}). Set KUBECONFIG to a file with which `kubectl get pods` works."
        ) from exc
    except ApiException as exc:
        raise ClusterError(
            f"The cluster refuses ({exc.status}: {_message(exc)}). The service account needs the rights of "
            "deployments/kubernetes/manifests/access.yaml: classgan kubernetes manifests"
        ) from exc
    except (aiohttp.ClientError, TimeoutError, OSError) as exc:
        raise ClusterError(
            f"The cluster's API doesn't answer ({exc!r}). Does `kubectl get pods` work? Running pods go on without it."
        ) from exc


def _message(exc: ApiException) -> str:
    try:
        return json.loads(exc.body or exc.reason or "")["message"]
    except (ValueError, KeyError, TypeError):
        return str(exc.reason)[:300]
