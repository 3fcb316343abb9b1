"""Which clusters of this user exist in a namespace, and how they are deleted."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

from jupyter_ddl.backends.base import FoundCluster
from jupyter_ddl.backends.kubernetes.api import KubeApi, in_pod
from jupyter_ddl.backends.kubernetes.names import (
    CLUSTER_LABEL,
    DASK_LABEL,
    ENDING_ANNOTATION,
    SIZE_ANNOTATION,
    selector_of,
    user_name,
)
from jupyter_ddl.backends.kubernetes.pod_status import has_ended, is_ending
from jupyter_ddl.errors import BackendError

__all__ = [
    "delete_cluster",
    "end_cluster",
    "find_clusters",
    "is_configured",
    "living_clusters",
    "n_wanted_of",
    "see_off",
]


Json = dict[str, Any]

# The end of a DaskCluster: deleted, and seen off until the API server knows nothing of it.

log = logging.getLogger(__name__)

_LOOK_S = 0.3
_OPERATOR_S = 5.0
"""An operator that has not let go by then does not run."""
_FORGET_S = 1.5
"""A node needs less than that to tell of a pod whose containers have ended, unless it is ill."""


async def end_cluster(api: KubeApi, name: str) -> None:
    """Delete a DaskCluster with everything that belongs to it; its pods are told to go.

    A finalizer keeps it until the operator has ended what it was doing for it.  kopf, on which the
    operator is built, looks whether that is so when the cluster changes, else after a minute
    (``settings.background.cancellation_polling``): so it is changed.  An operator that does not
    answer loses its hold, and Kubernetes deletes what is left.

    Raises
    ------
    BackendError
        The API server refused.
    """
    await api.delete("daskclusters", name)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while await _is_there(api, name):
        await asyncio.sleep(_LOOK_S)
        waited_s = loop.time() - began_s
        change: Json = {"annotations": {ENDING_ANNOTATION: f"{waited_s:.1f}"}}
        if waited_s > _OPERATOR_S:
            log.warning("DaskCluster %s: no operator lets go of it; its finalizers go", name)
            change = {"finalizers": None}
        await _change(api, name, change)
    # The operator may make it after the deletion, and makes it a part of the cluster later still.
    await api.delete("daskworkergroups", f"{name}-default")


async def see_off(api: KubeApi, name: str) -> None:
    """Wait until the pods of a deleted cluster are gone; those that have ended are forgotten.

    A kubelet of 1.20 keeps pods until it clears away what they ran in, once a minute, and a node
    that is lost never tells of an end that its pods had before.  They cost nothing, but fill a
    quota.  Needs a right that a start does not: without it nothing is done.

    Raises
    ------
    BackendError
        The API server refused.
    """
    if not await api.may("delete", "", "pods"):
        return
    loop = asyncio.get_running_loop()
    ended_at_s: dict[str, float] = {}
    while pods := await api.list("pods", labelSelector=f"{DASK_LABEL}={name}"):
        for pod in filter(has_ended, pods):
            pod_name = str(pod["metadata"]["name"])
            if loop.time() - ended_at_s.setdefault(pod_name, loop.time()) > _FORGET_S:
                await api.delete("pods", pod_name, grace_s=0)
        await asyncio.sleep(_LOOK_S)


async def _is_there(api: KubeApi, name: str) -> bool:
    try:
        await api.get("daskclusters", name)
    except BackendError as error:
        if error.status == 404:
            return False
        raise
    return True


async def _change(api: KubeApi, name: str, metadata: Json) -> None:
    try:
        await api.patch("daskclusters", name, {"metadata": metadata})
    except BackendError as error:
        if error.status != 404:
            raise


_PATIENCE_S = 3.0


def is_configured() -> bool:
    """Whether there are credentials to look with, so that others are not bothered."""
    path = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    return Path(path).expanduser().exists() or in_pod()


async def find_clusters(namespace: str | None = None) -> list[FoundCluster]:
    """All of this user's clusters in a namespace that are not about to end, by name.

    Raises
    ------
    ClusterError
        The API server can't be asked.
    """
    async with aclosing(await KubeApi.connect(namespace, patience_s=_PATIENCE_S)) as api:
        found = await living_clusters(api)
    return sorted(map(_found, found), key=lambda each: each.name)


async def living_clusters(api: KubeApi, name: str | None = None) -> list[Json]:
    """This user's DaskClusters that are not about to end, or those of one name.

    Raises
    ------
    BackendError
        The API server refused.
    """
    items = await api.list("daskclusters", labelSelector=selector_of(user_name(), name))
    return [item for item in items if not is_ending(item)]


def n_wanted_of(cluster: Json) -> int:
    """Workers that were asked for last.  Pure."""
    noted = cluster["metadata"].get("annotations", {}).get(SIZE_ANNOTATION, "")
    asked = cluster.get("spec", {}).get("worker", {}).get("replicas", 0)
    return int(noted) if noted.isdecimal() else int(asked)


async def delete_cluster(found: FoundCluster) -> None:
    """Delete a cluster with its controller.

    Raises
    ------
    ClusterError
        The API server refused.
    """
    namespace, _, name = found.handle.partition("/")
    async with aclosing(await KubeApi.connect(namespace, patience_s=_PATIENCE_S)) as api:
        await end_cluster(api, name)


def _found(item: Json) -> FoundCluster:
    metadata = item["metadata"]
    return FoundCluster(
        backend="kube",
        name=metadata["labels"].get(CLUSTER_LABEL, metadata["name"]),
        place=f"namespace {metadata['namespace']}",
        n_workers=n_wanted_of(item),
        owner="",
        handle=f"{metadata['namespace']}/{metadata['name']}",
        settings={"namespace": metadata["namespace"]},
    )
