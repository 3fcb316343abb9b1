"""Dask-kubernetes' operator, as far as it is to be seen from a namespace.  Pure.

It mostly lives in another namespace, and the credentials of a notebook see none but their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["operator_deployment", "restart", "start_or_restart"]

_NAME = "dask-kubernetes-operator"
"""In the labels of Helm's chart, in the name that the manifest gives, and in its image."""
_PROGRAM = "dask_kubernetes.operator"
_FIND = "`kubectl get deployments -A | grep dask` finds it"

Json = dict[str, Any]


def operator_deployment(pods: Iterable[Json]) -> str | None:
    """The name of its deployment, where it is one of these pods and runs.

    Empty for one that belongs to no deployment, None where it is not among them.
    """
    for pod in pods:
        if pod.get("status", {}).get("phase") == "Running" and _is_operator(pod):
            return _deployment(pod["metadata"])
    return None


def restart(deployment: str = "", namespace: str = "") -> str:
    """How an operator is restarted, whoever has installed it in whatever way."""
    if deployment:
        return f"`kubectl rollout restart deployment {deployment} -n {namespace}`"
    return f"{_FIND}, `kubectl rollout restart deployment NAME -n NAMESPACE` restarts it"


def start_or_restart(deployment: str = "", namespace: str = "") -> str:
    """What is to be done about an operator that does nothing."""
    if deployment:
        return f"have its operator restarted: {restart(deployment, namespace)}"
    return f"have the operator's deployment started, or restarted: {restart()}"


def _is_operator(pod: Json) -> bool:
    labels = pod["metadata"].get("labels", {})
    named = {labels.get(key) for key in ("app.kubernetes.io/name", "application", "app")}
    if _NAME in named:
        return True
    for container in pod.get("spec", {}).get("containers", []):
        words = [*container.get("command", []), *container.get("args", [])]
        if _NAME in container.get("image", "") or any(_PROGRAM in word for word in words):
            return True
    return False


def _deployment(metadata: Json) -> str:
    """A pod belongs to a ReplicaSet, which has its deployment's name and a hash."""
    template = metadata.get("labels", {}).get("pod-template-hash", "")
    for owner in metadata.get("ownerReferences", []):
        if owner.get("kind") == "ReplicaSet" and template:
            return str(owner["name"]).removesuffix(f"-{template}")
    return ""
