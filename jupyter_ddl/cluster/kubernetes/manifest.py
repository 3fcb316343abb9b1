"""The objects of a cluster as Kubernetes reads them.  Pure."""

from __future__ import annotations

import base64
from typing import Any

from jupyter_ddl.cluster.kubernetes import names
from jupyter_ddl.cluster.kubernetes.pods import COMM_PORT, HTTP_PORT, scheduler_pod, worker_pod
from jupyter_ddl.spec.cluster import ClusterSpec

__all__ = ["dask_cluster", "network_policy", "owned_by", "tls_secret"]

Json = dict[str, Any]


def dask_cluster(
    spec: ClusterSpec,
    name: str,
    namespace: str,
    *,
    user: str,
    n_workers: int,
    annotations: dict[str, str],
    owner: Json | None = None,
) -> Json:
    """The DaskCluster of which the operator makes everything else.

    Parameters
    ----------
    owner : dict, optional
        An owner reference: the notebook's own pod, of the same namespace.
    """
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "labels": names.labels_of(spec.name, user),
        "annotations": annotations,
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    selector = {names.DASK_LABEL: name, "dask.org/component": "scheduler"}
    of_pods = {"labels": spec.kubernetes.pod_labels, "annotations": spec.kubernetes.pod_annotations}
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": metadata,
        "spec": {
            # The operator asks the scheduler, which answers when its lease is over.
            "idleTimeout": max(1, round(spec.kubernetes.lease_s)),
            "scheduler": {
                "metadata": of_pods,
                "spec": scheduler_pod(spec, name),
                "service": {
                    "type": "ClusterIP",
                    "selector": selector,
                    "ports": [_port("tcp-comm", COMM_PORT), _port("http-dashboard", HTTP_PORT)],
                },
            },
            "worker": {
                "metadata": of_pods,
                "replicas": n_workers,
                "spec": worker_pod(spec, name, namespace),
            },
        },
    }


def _port(name: str, number: int) -> Json:
    return {"name": name, "protocol": "TCP", "port": number, "targetPort": name}


def owned_by(cluster: Json) -> Json:
    """Owner reference to a DaskCluster as the API server has returned it."""
    return {
        "apiVersion": cluster["apiVersion"],
        "kind": cluster["kind"],
        "name": cluster["metadata"]["name"],
        "uid": cluster["metadata"]["uid"],
    }


def tls_secret(cluster: Json, certificate: str, key: str) -> Json:
    """Certificate and key of all comms of one cluster; it goes with the cluster."""
    metadata = cluster["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": _owned(cluster, f"{metadata['name']}-tls"),
        "data": {
            "tls.crt": base64.b64encode(certificate.encode()).decode(),
            "tls.key": base64.b64encode(key.encode()).decode(),
        },
    }


def network_policy(cluster: Json) -> Json:
    """Only pods of the cluster reach each other's ports; the controller comes from anywhere.

    Where the controller is, Kubernetes can't know (a laptop behind a port-forward, a JupyterHub pod
    of any namespace): the scheduler's port stays open to all and is guarded by TLS with the
    cluster's own certificate.  Workers' ports, on which ranks talk without TLS, are closed.
    """
    name = cluster["metadata"]["name"]
    cluster_pods = {"matchLabels": {names.DASK_LABEL: name}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _owned(cluster, name),
        "spec": {
            "podSelector": {
                "matchLabels": {names.DASK_LABEL: name, "dask.org/component": "worker"}
            },
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": cluster_pods}]}],
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
