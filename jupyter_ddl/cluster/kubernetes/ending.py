"""The end of a DaskCluster: deleted, and seen off until the API server knows it no more."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from jupyter_ddl.cluster.kubernetes.api import KubeApi
from jupyter_ddl.cluster.kubernetes.lease import is_orphan
from jupyter_ddl.cluster.kubernetes.names import ENDING_ANNOTATION, selector_of, user_name
from jupyter_ddl.errors import KubernetesError

__all__ = ["end_cluster", "end_orphans"]

log = logging.getLogger(__name__)

_LOOK_S = 0.3
_OPERATOR_S = 5.0
"""An operator that has not let go by then does not run."""

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
