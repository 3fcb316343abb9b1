"""What pods of a cluster need beside the DaskCluster itself, by resource; the cluster owns it."""

from __future__ import annotations

import logging
from typing import Any

from distributed import Security

from jupyter_ddl.cluster.kubernetes.api import KubeApi
from jupyter_ddl.cluster.kubernetes.manifest import network_policy, tls_secret
from jupyter_ddl.errors import KubernetesError

__all__ = ["parts_of", "put_back"]

log = logging.getLogger(__name__)

Json = dict[str, Any]


def parts_of(cluster: Json, security: Security) -> dict[str, Json]:
    """The objects of a DaskCluster as the API server has returned it."""
    return {
        "secrets": tls_secret(cluster, security.tls_ca_file, security.tls_scheduler_key),
        "networkpolicies": network_policy(cluster),
    }


async def put_back(api: KubeApi, parts: dict[str, Json]) -> None:
    """Create what somebody has deleted; what is there is refused as such."""
    for resource, part in parts.items():
        try:
            await api.create(resource, part)
            log.warning("%s %s was deleted; made anew", resource, part["metadata"]["name"])
        except KubernetesError as error:
            if error.status != 409:
                log.warning("%s", error.message)
