"""Clusters on Kubernetes whose controllers are not on this host, and what can be checked ahead."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import msgspec

from jupyter_ddl.client.kube_options import KUBE, kube_spec, with_image
from jupyter_ddl.client.link import client_loop
from jupyter_ddl.errors import ClusterError, EnvironmentFileError, ImageError
from jupyter_ddl.protocol.cluster import ClusterSpec, KubeSpec
from jupyter_ddl.store.connection import list_connections

if TYPE_CHECKING:
    from jupyter_ddl.backends.kubernetes.doctor import Finding
    from jupyter_ddl.backends.kubernetes.lifetime import FoundCluster

__all__ = [
    "clusters_elsewhere",
    "delete_elsewhere",
    "examine_from",
    "examine_kubernetes",
    "print_rbac",
]

_CALL_S = 30.0


def clusters_elsewhere(namespace: str | None = None) -> list[FoundCluster]:
    """This user's clusters that no controller of this host holds; none without credentials.

    Raises
    ------
    ClusterError
        The API server can't be asked.
    """
    from jupyter_ddl.backends.kubernetes import lifetime as listing

    if not listing.is_configured():
        return []
    here = {info.name for info in list_connections()}
    found = client_loop().call(listing.find_clusters(namespace), _CALL_S)
    return [
        each
        for each in found
        if not each.is_ending and not (each.is_from_here and each.name in here)
    ]


def delete_elsewhere(found: FoundCluster) -> None:
    """Delete a cluster by the API server alone; its controller, if it lives, loses it."""
    from jupyter_ddl.backends.kubernetes.lifetime import delete_cluster

    client_loop().call(delete_cluster(found), _CALL_S)


def examine_from(options: argparse.Namespace) -> list[Finding]:
    """What ``doctor`` shows; it takes the options of ``start kube``."""
    from jupyter_ddl.backends.kubernetes.doctor import Finding

    options.backend = KUBE
    try:
        kubernetes = kube_spec(options)
    except ClusterError as error:
        return [Finding("options", "broken", error.message)]
    return examine_kubernetes(kubernetes, options.cpus, options.memory)


def examine_kubernetes(
    kubernetes: KubeSpec, cpus: int = 1, memory_bytes: int | None = None
) -> list[Finding]:
    """What a cluster of such pods lacks; all is looked at, also without an image."""
    from jupyter_ddl.backends.kubernetes.doctor import Finding, check_options, examine

    findings: list[Finding] = []
    try:
        kubernetes = with_image(kubernetes)
    except (ImageError, EnvironmentFileError) as error:
        findings.append(Finding("image", "broken", error.message))
        kubernetes = msgspec.structs.replace(kubernetes, image=None)
    spec = ClusterSpec(KUBE, KUBE, None, cpus, memory_bytes, kubernetes=kubernetes)
    try:
        if not findings:
            check_options(spec)
    except ClusterError as error:
        return [Finding("options", "broken", error.message)]
    try:
        seen = client_loop().call(examine(spec), _CALL_S)
    except ClusterError as error:
        seen = [Finding("API server", "broken", error.message)]
    return [*findings, *(each for each in seen if not findings or each.what != "image")]


def print_rbac(namespace: str | None) -> str:
    """The smallest Role, as YAML."""
    from jupyter_ddl.backends.kubernetes.doctor import rbac_text

    return client_loop().call(rbac_text(namespace), _CALL_S)
