"""What is checked before anything is created."""

from __future__ import annotations

import asyncio
import re

from jupyter_ddl.cluster.kubernetes.access import NEEDS, Need
from jupyter_ddl.cluster.kubernetes.api import KubeApi
from jupyter_ddl.cluster.kubernetes.names import check_dns_label
from jupyter_ddl.cluster.kubernetes.pods import worker_pod
from jupyter_ddl.cluster.kubernetes.template import check_mounts
from jupyter_ddl.errors import ClusterError, KubernetesError
from jupyter_ddl.spec.cluster import ClusterSpec

__all__ = ["check_access", "check_options", "missing_access"]

_MAX_CPUS = 1024
_MIN_MEMORY_BYTES = 64 << 20
_MAX_MEMORY_BYTES = 1 << 46
_VOLUME = re.compile(r"(pvc|configmap|secret):[a-z0-9][a-z0-9.-]*:/.+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_options(spec: ClusterSpec) -> None:
    """Refuse what Kubernetes would refuse later, or take and never schedule.

    Raises
    ------
    ClusterError
        Names the option, the value, and what is expected.
    """
    kube, memory = spec.kubernetes, spec.memory_per_worker_bytes
    check_dns_label("cluster name", spec.name)
    if kube.namespace is not None:
        check_dns_label("namespace", kube.namespace)
    if not 1 <= spec.cpus_per_worker <= _MAX_CPUS:
        raise ClusterError(f"--cpus {spec.cpus_per_worker}: 1 to {_MAX_CPUS} are expected")
    if memory is not None and not _MIN_MEMORY_BYTES <= memory <= _MAX_MEMORY_BYTES:
        raise ClusterError(
            f"--memory is {memory:,} bytes; 64MB to 64TB are expected (did you mean {memory}GB?)"
        )
    if kube.image is None:
        raise ClusterError("no image was chosen for the pods; name one with --env IMAGE")
    if kube.gpus < 0:
        raise ClusterError(f"--gpus {kube.gpus}: 0 or more are expected")
    for text in kube.volumes:
        if not _VOLUME.fullmatch(text):
            raise ClusterError(
                f"--volume {text!r}: KIND:NAME:/path is expected; KIND is pvc, configmap or secret"
            )
    if kube.pod_template is not None:
        check_mounts(worker_pod(spec, "name", "namespace"))
    for name in kube.env:
        if not _VARIABLE.fullmatch(name):
            raise ClusterError(f"--set-env {name!r} is not the name of a variable; NAME=VALUE is")


async def check_access(api: KubeApi) -> None:
    """Refuse to begin what these credentials could not end.

    Raises
    ------
    KubernetesError
        Names what is not allowed, and the namespace.
    """
    missing = [need for need in await missing_access(api) if not need.is_optional]
    if missing:
        listed = ", ".join(need.text for need in missing)
        raise KubernetesError(
            f"these credentials may not {listed} in namespace {api.namespace}; "
            f"`%cluster doctor --print-rbac` prints the Role that it takes"
        )


async def missing_access(api: KubeApi) -> list[Need]:
    """What of :data:`NEEDS` is not allowed."""
    allowed = await asyncio.gather(
        *(api.may(need.verb, need.group, need.resource, need.subresource) for need in NEEDS)
    )
    return [need for need, is_allowed in zip(NEEDS, allowed, strict=True) if not is_allowed]
