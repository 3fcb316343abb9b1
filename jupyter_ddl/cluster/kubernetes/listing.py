"""Clusters of this user in a namespace, whoever started them, seen by the API server alone."""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.cluster.kubernetes.api import KubeApi
from jupyter_ddl.cluster.kubernetes.ending import end_cluster
from jupyter_ddl.cluster.kubernetes.inside import in_pod
from jupyter_ddl.cluster.kubernetes.names import (
    CLUSTER_LABEL,
    HOST_ANNOTATION,
    selector_of,
    user_name,
)
from jupyter_ddl.store.processes import boot_id

__all__ = ["FoundCluster", "delete_cluster", "find_clusters", "is_configured"]

_PATIENCE_S = 3.0

Json = dict[str, Any]


class FoundCluster(msgspec.Struct, frozen=True):
    """A DaskCluster with this user's label."""

    name: str
    """As ``%cluster start --name`` was given."""
    object_name: str
    """Of the DaskCluster."""
    namespace: str
    n_workers: int
    """Asked for."""
    is_from_here: bool
    """Whether its controller runs, or ran, on this host."""
    is_ending: bool = False


def is_configured() -> bool:
    """Whether there are credentials to look with, so that others are not bothered."""
    path = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    return Path(path).expanduser().exists() or in_pod()


async def find_clusters(namespace: str | None = None) -> list[FoundCluster]:
    """All of this user's clusters in a namespace, by name.

    Raises
    ------
    ClusterError
        The API server can't be asked.
    """
    async with aclosing(await KubeApi.connect(namespace, patience_s=_PATIENCE_S)) as api:
        items = await api.list("daskclusters", labelSelector=selector_of(user_name()))
    return sorted((_found(item) for item in items), key=lambda each: each.name)


async def delete_cluster(found: FoundCluster) -> None:
    """Delete a cluster whose controller is not here.

    Raises
    ------
    ClusterError
        The API server refused.
    """
    async with aclosing(await KubeApi.connect(found.namespace, patience_s=_PATIENCE_S)) as api:
        await end_cluster(api, found.object_name)


def _found(item: Json) -> FoundCluster:
    metadata = item["metadata"]
    return FoundCluster(
        name=metadata["labels"].get(CLUSTER_LABEL, metadata["name"]),
        object_name=metadata["name"],
        namespace=metadata["namespace"],
        n_workers=int(item.get("spec", {}).get("worker", {}).get("replicas", 0)),
        is_from_here=metadata.get("annotations", {}).get(HOST_ANNOTATION) == boot_id(),
        is_ending="deletionTimestamp" in metadata,
    )
