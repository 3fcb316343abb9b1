"""What belongs to a DaskCluster: Secrets, policies, the controller's rights, and its last resort.

All of it is owned by the cluster and goes with it.  Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.backends.kubernetes import names
from jupyter_ddl.backends.kubernetes.hardening import container_security, pod_security
from jupyter_ddl.backends.kubernetes.manifest import CONTROLLER
from jupyter_ddl.backends.kubernetes.settings import kube_settings
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = [
    "controller_secret",
    "last_resort",
    "network_policy",
    "own_account",
    "owned_by",
    "tls_secret",
]

_AFTER_MAX_AGE_S = 900

Json = dict[str, Any]


def owned_by(owner: Json) -> Json:
    """Owner reference to an object as the API server has returned it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def tls_secret(cluster: Json, certificate: str, key: str) -> Json:
    """Certificate and key of all comms of one cluster; it goes with the cluster."""
    return _secret(cluster, "tls", "kubernetes.io/tls", {"tls.crt": certificate, "tls.key": key})


def controller_secret(cluster: Json, files: Mapping[str, str]) -> Json:
    """What the controller is started with, and what opens its port: its pods see no client's key.

    Parameters
    ----------
    files : mapping of str to str
        The texts of the port's keys and of :data:`SPEC_FILE`, by their names.
    """
    return _secret(cluster, CONTROLLER, "Opaque", files)


def _secret(cluster: Json, what: str, kind: str, files: Mapping[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": _owned(cluster, f"{cluster['metadata']['name']}-{what}"),
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
    }


def network_policy(cluster: Json) -> Json:
    """Only pods of the cluster reach its workers' ports, on which ranks talk without TLS.

    The scheduler's pod stays open to all: where notebooks, the operator and the way through the API
    server come from, Kubernetes can't know.  Its ports are guarded by TLS with the cluster's own
    certificate, and the controller's by a client's key besides.  A policy that named those who may
    come would add them to what a site's own policy allows.
    """
    name = cluster["metadata"]["name"]
    of_cluster = {names.DASK_LABEL: name}
    workers = {**of_cluster, "dask.org/component": "worker"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _owned(cluster, name),
        "spec": {
            "podSelector": {"matchLabels": workers},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": of_cluster}}]}],
        },
    }


def last_resort(cluster: Json, spec: ClusterSpec) -> Json:
    """A Job without pods that is to own the cluster: Kubernetes itself deletes it some day.

    Its deadline comes after the cluster's maximum age.  From 1.21 on a finished Job is deleted when
    its time to live is over, and everything that it owns with it: also where neither a controller
    nor an operator is left.  The cluster owns it in turn, so whichever ends first takes the other.
    """
    nobody = {
        "name": "nobody",
        "image": kube_settings(spec).image,
        "command": ["true"],
        "resources": {
            "requests": {"cpu": "1m", "memory": "1Mi"},
            "limits": {"cpu": "1m", "memory": "8Mi"},
        },
        **container_security(),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _owned(cluster, cluster["metadata"]["name"]),
        "spec": {
            "parallelism": 0,
            "backoffLimit": 0,
            "activeDeadlineSeconds": round(spec.max_age_s) + _AFTER_MAX_AGE_S,
            "ttlSecondsAfterFinished": 0,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [nobody], **pod_security()}
            },
        },
    }


def own_account(cluster: Json, rules: list[Json]) -> dict[str, Json]:
    """A service account of this cluster's controller alone, with its Role, by resource.

    In the order in which they are to be made: no pod begins before its account is there, and none
    that has begun looks at what its rights do not allow yet.
    """
    name = f"{cluster['metadata']['name']}-{CONTROLLER}"
    group = "rbac.authorization.k8s.io"
    subject = {
        "kind": "ServiceAccount",
        "name": name,
        "namespace": cluster["metadata"]["namespace"],
    }
    return {
        "roles": {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": _owned(cluster, name),
            "rules": rules,
        },
        "rolebindings": {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": _owned(cluster, name),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [subject],
        },
        "serviceaccounts": {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _owned(cluster, name),
            "automountServiceAccountToken": False,
        },
    }


def _owned(cluster: Json, name: str) -> Json:
    metadata = cluster["metadata"]
    return {
        "name": name,
        "namespace": metadata["namespace"],
        "labels": dict(metadata["labels"]),
        "ownerReferences": [owned_by(cluster)],
    }
