"""The objects of a cluster as Kubernetes reads them.  Pure."""

from __future__ import annotations

import base64
import json
from typing import Any

from jupyter_ddl.backends.dask_config import DASK_CONFIG
from jupyter_ddl.backends.kubernetes import names
from jupyter_ddl.backends.kubernetes.hardening import container_security, pod_security
from jupyter_ddl.backends.kubernetes.settings import kube_settings
from jupyter_ddl.backends.kubernetes.spot import SpotPool
from jupyter_ddl.backends.kubernetes.template import merged
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = [
    "COMM_PORT",
    "HTTP_PORT",
    "dask_cluster",
    "network_policy",
    "node_labels",
    "owned_by",
    "scheduler_pod",
    "tls_secret",
    "worker_pod",
]


# The pods of a cluster: what runs in them, hardened as the *restricted* standard asks.  Pure.
#
# https://kubernetes.io/docs/concepts/security/pod-security-standards/

COMM_PORT = 8786
HTTP_PORT = 8787
_DASK = ("python", "-m", "jupyter_ddl.backends.kubernetes.pod_main")
_TLS = "/etc/jupyter-ddl/tls"
_OVERHEAD_BYTES = 400 << 20
"""A worker and its zygote with torch imported, beside the rank."""
_DEFAULT_LIMIT_BYTES = 2 << 30
_DEFAULT_REQUEST_BYTES = 768 << 20
_CPU_SHARE = 0.9
"""Nodes keep something for themselves: N workers of C CPUs fit on a node that has N x C."""
_GRACE_S = 30

Json = dict[str, Any]


def scheduler_pod(spec: ClusterSpec, name: str) -> Json:
    """Pod of the Dask scheduler, which also ends the cluster when nobody renews its lease."""
    container = {
        **_container("scheduler", kube_settings(spec).image),
        "args": [
            *_DASK,
            "scheduler",
            "--protocol=tls",  # on all interfaces: a forwarded port arrives at the loopback
            f"--port={COMM_PORT}",
            f"--dashboard-address=:{HTTP_PORT}",
            "--no-dashboard",
            "--preload=jupyter_ddl.backends.kubernetes.scheduler_pod",
        ],
        "ports": [
            {"name": "tcp-comm", "containerPort": COMM_PORT, "protocol": "TCP"},
            {"name": "http-dashboard", "containerPort": HTTP_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": {
            "tcpSocket": {"port": "tcp-comm"},
            "periodSeconds": 1,
            "failureThreshold": 120,
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "192Mi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
    }
    container["env"] = [
        *container["env"],
        _variable("JUPYTER_DDL_LEASE_S", str(kube_settings(spec).lease_s)),
        _variable("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", str(spec.worker_timeout_s)),
        _variable(
            "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES",
            json.dumps(["jupyter_ddl.backends.kubernetes.scheduler_pod"]),
        ),
    ]
    pod = _pod(spec, name, container)
    template = kube_settings(spec).pod_template
    return pod if template is None else merged(pod, json.loads(template), container_fields=False)


def worker_pod(spec: ClusterSpec, name: str, namespace: str) -> Json:
    """Pod of one Dask worker."""
    kube = kube_settings(spec)
    container = {
        **_container("worker", kube.image),
        "args": [
            *_DASK,
            "worker",
            "--name=$(DASK_WORKER_NAME)",
            "--host=$(POD_IP)",
            f"--nthreads={kube.slots}",  # Dask's word for slots
            "--memory-limit=0",
            "--no-nanny",
            "--no-dashboard",
            "--local-directory=/tmp/dask",
            "--death-timeout=120",
            "--preload=jupyter_ddl.worker.preemption",
        ],
        "resources": _worker_resources(spec),
    }
    container["env"] = [
        *container["env"],
        _variable("DASK_SCHEDULER_ADDRESS", f"tls://{name}-scheduler.{namespace}.svc:{COMM_PORT}"),
        *(_variable(key, value) for key, value in sorted(kube.env.items())),
        *(_secret_variable(key, text) for key, text in sorted(kube.secret_env.items())),
    ]
    pod = _pod(spec, name, container)
    _add_pool(pod, kube.spot)
    _add_volumes(pod, kube.volumes)
    template = kube.pod_template
    return pod if template is None else merged(pod, json.loads(template))


def node_labels(spec: ClusterSpec) -> dict[str, str]:
    """What the workers' pods ask of their nodes."""
    kube = kube_settings(spec)
    template = json.loads(kube.pod_template or "{}")
    pool = {} if kube.spot is None else kube.spot.node_selector
    return {**kube.node_selector, **pool, **(template.get("nodeSelector") or {})}


def _pod(spec: ClusterSpec, name: str, container: Json) -> Json:
    kube = kube_settings(spec)
    pod: Json = {
        "containers": [container],
        "terminationGracePeriodSeconds": _GRACE_S,
        **pod_security(),
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "tls", "secret": {"secretName": f"{name}-tls", "defaultMode": 0o440}},
        ],
    }
    if kube.node_selector:
        pod["nodeSelector"] = dict(kube.node_selector)
    if kube.tolerations:
        pod["tolerations"] = [_toleration(text) for text in kube.tolerations]
    if kube.priority is not None:
        pod["priorityClassName"] = kube.priority
    return pod


def _add_pool(pod: Json, pool: SpotPool | None) -> None:
    """Workers only: with a scheduler that is taken away, all that runs would be repeated."""
    if pool is not None:
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), **pool.node_selector}
        pod["tolerations"] = [*pod.get("tolerations", []), *map(_toleration, pool.tolerations)]


def _container(role: str, image: str | None) -> Json:
    return {
        "name": role,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            _variable("DASK_INTERNAL_INHERIT_CONFIG", _inherited()),
            _variable("DASK_DISTRIBUTED__COMM__TLS__CA_FILE", f"{_TLS}/tls.crt"),
            _variable(f"DASK_DISTRIBUTED__COMM__TLS__{role.upper()}__CERT", f"{_TLS}/tls.crt"),
            _variable(f"DASK_DISTRIBUTED__COMM__TLS__{role.upper()}__KEY", f"{_TLS}/tls.key"),
            _variable("HOME", "/tmp/home"),  # the root file system is read-only
            _variable("JUPYTER_DDL_HOME", "/tmp/jupyter_ddl"),
            _variable("PYTHONDONTWRITEBYTECODE", "1"),
            _variable("PYTHONUNBUFFERED", "1"),
        ],
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "tls", "mountPath": _TLS, "readOnly": True},
        ],
        **container_security(),
    }


def _worker_resources(spec: ClusterSpec) -> Json:
    slots, memory = kube_settings(spec).slots, spec.memory_per_worker_bytes
    cpus = spec.cpus_per_worker * slots
    limit = _DEFAULT_LIMIT_BYTES * slots if memory is None else memory * slots + _OVERHEAD_BYTES
    request = _DEFAULT_REQUEST_BYTES * slots if memory is None else limit
    requests: Json = {"cpu": f"{round(cpus * 1000 * _CPU_SHARE)}m", "memory": str(request)}
    limits: Json = {"cpu": str(cpus), "memory": str(limit)}
    if kube_settings(spec).gpus:
        requests["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(kube_settings(spec).gpus)
    return {"requests": requests, "limits": limits}


def _add_volumes(pod: Json, volumes: tuple[str, ...]) -> None:
    for number, text in enumerate(volumes):
        kind, source, path = text.split(":", 2)
        name = f"user-{number}"
        sources: dict[str, Json] = {
            "pvc": {"persistentVolumeClaim": {"claimName": source}},
            "configmap": {"configMap": {"name": source}},
            "secret": {"secret": {"secretName": source}},
        }
        pod["volumes"].append({"name": name, **sources[kind]})
        pod["containers"][0]["volumeMounts"].append({"name": name, "mountPath": path})


def _toleration(text: str) -> Json:
    key, _, effect = text.partition(":")
    name, has_value, value = key.partition("=")
    toleration: Json = {"key": name, "operator": "Equal" if has_value else "Exists"}
    if has_value:
        toleration["value"] = value
    if effect:
        toleration["effect"] = effect
    return toleration


def _variable(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def _secret_variable(name: str, text: str) -> Json:
    secret, _, key = text.partition(":")
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _inherited() -> str:
    """Dask's configuration as ``dask.config.deserialize`` reads it."""
    tree: Json = {}
    for key, value in DASK_CONFIG.items():
        *path, last = key.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return base64.urlsafe_b64encode(json.dumps(tree).encode()).decode()


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
    settings = kube_settings(spec)
    of_pods = {"labels": settings.pod_labels, "annotations": settings.pod_annotations}
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": metadata,
        "spec": {
            # The operator asks the scheduler, which answers when its lease is over.
            "idleTimeout": max(1, round(kube_settings(spec).lease_s)),
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
