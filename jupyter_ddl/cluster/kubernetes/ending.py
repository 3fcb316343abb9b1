"""The end of a DaskCluster: deleted, and seen off until the API server knows nothing of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from jupyter_ddl.cluster.kubernetes.api import KubeApi
from jupyter_ddl.cluster.kubernetes.lease import is_orphan
from jupyter_ddl.cluster.kubernetes.names import (
    DASK_LABEL,
    ENDING_ANNOTATION,
    selector_of,
    user_name,
)
from jupyter_ddl.cluster.kubernetes.sight import has_ended
from jupyter_ddl.errors import KubernetesError

__all__ = ["end_cluster", "end_orphans", "see_off"]

log = logging.getLogger(__name__)

_LOOK_S = 0.3
_OPERATOR_S = 5.0
"""An operator that has not let go by then does not run."""
_FORGET_S = 1.5
"""A node needs less than that to tell of a pod whose containers have ended, unless it is ill."""

Json = dict[str, Any]


async def end_cluster(api: KubeApi, name: str) -> None:
    """Delete a DaskCluster with everything that belongs to it; its pods are told to go.

    A finalizer keeps it until the operator has ended what it was doing for it.  kopf, on which the
    operator is built, looks whether that is so when the cluster changes, else after a minute
    (``settings.background.cancellation_polling``): so it is changed.  An operator that does not
    answer loses its hold, and Kubernetes deletes what is left.

    Raises
    ------
    KubernetesError
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
    KubernetesError
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


async def end_orphans(api: KubeApi, cluster: str) -> None:
    """Delete clusters of this name whose controllers were killed on this host.

    Raises
    ------
    KubernetesError
        The API server refused.
    """
    selector = selector_of(user_name(), cluster)
    for found in await api.list("daskclusters", labelSelector=selector):
        if is_orphan(found):
            name = str(found["metadata"]["name"])
            log.warning("deleting DaskCluster %s: its controller is gone", name)
            await end_cluster(api, name)


async def _is_there(api: KubeApi, name: str) -> bool:
    try:
        await api.get("daskclusters", name)
    except KubernetesError as error:
        if error.status == 404:
            return False
        raise
    return True


async def _change(api: KubeApi, name: str, metadata: Json) -> None:
    try:
        await api.patch("daskclusters", name, {"metadata": metadata})
    except KubernetesError as error:
        if error.status != 404:
            raise
