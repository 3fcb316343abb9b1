"""The objects of a cluster as Kubernetes reads them.  Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_ddl.backends.certificates import SERVER_FILES
from jupyter_ddl.backends.dask_config import DASK_CONFIG
from jupyter_ddl.backends.kubernetes import names
from jupyter_ddl.backends.kubernetes.hardening import container_security, pod_security
from jupyter_ddl.backends.kubernetes.home_claim import claim_of
from jupyter_ddl.backends.kubernetes.settings import kube_settings
from jupyter_ddl.backends.kubernetes.spot import SpotPool
from jupyter_ddl.backends.kubernetes.template import merged
from jupyter_ddl.protocol.cluster import SPEC_FILE, ClusterSpec

__all__ = [
    "CLUSTER_VARIABLE",
    "COMM_PORT",
    "CONTROLLER",
    "CONTROLLER_PORT",
    "HTTP_PORT",
    "TLS_FOLDER",
    "dask_cluster",
    "n_workers_of",
    "node_labels",
    "passed_on",
    "scheduler_pod",
    "worker_pod",
]


# The pods of a cluster: what runs in them, hardened as the *restricted* standard asks.  Pure.
#
# https://kubernetes.io/docs/concepts/security/pod-security-standards/

CONTROLLER_PORT = 8785
COMM_PORT = 8786
HTTP_PORT = 8787
CONTROLLER = "controller"
"""Name of its container, beside the scheduler's."""
_DASK = ("python", "-m", "jupyter_ddl.backends.kubernetes.pod_main")
_TLS = "/etc/jupyter-ddl/tls"
TLS_FOLDER = Path(_TLS)
CLUSTER_VARIABLE = "JUPYTER_DDL_DASKCLUSTER"
"""In a controller's environment: the name of its cluster's object."""
_N_WORKERS = 2
_KEYS = "/etc/jupyter-ddl/controller"
_HOME = "/var/lib/jupyter-ddl"
_FOLDER = "jupyter_ddl"
"""On a claim, which may hold other things, and may be root's; the controller makes it.

One in it for each user: clusters of two users may have one name, and one claim.
"""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_S = 3600
"""The kubelet puts a new one in the place of a token long before its end."""
_PASSED_ON = ("JUPYTER_DDL_DISK_COPIES", "JUPYTER_DDL_LOG_BYTES", "JUPYTER_DDL_TELEMETRY_INTERVAL")
"""Settings of a notebook's environment that mean the same where its controller is a pod."""
_OVERHEAD_BYTES = 400 << 20
"""A worker and its zygote with torch imported, beside the rank."""
_DEFAULT_LIMIT_BYTES = 2 << 30
_DEFAULT_REQUEST_BYTES = 768 << 20
_CPU_SHARE = 0.9
"""Nodes keep something for themselves: N workers of C CPUs fit on a node that has N x C."""
_GRACE_S = 30

Json = dict[str, Any]


def n_workers_of(spec: ClusterSpec) -> int:
    """Workers that a cluster is started with."""
    return _N_WORKERS if spec.n_workers is None else spec.n_workers


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """What of a notebook's environment its controller is to have, too."""
    return {name: environ[name] for name in _PASSED_ON if name in environ}


def scheduler_pod(
    spec: ClusterSpec,
    name: str,
    account: str = "default",
    environ: Mapping[str, str] | None = None,
    user: str = "",
) -> Json:
    """Pod of the Dask scheduler and of the controller, in two containers that share no file.

    Who has a worker's key may run code in the scheduler, which unpickles what its clients send, and
    must come no nearer to the runs' records and the service account's token for it.

    Parameters
    ----------
    account : str
        The controller's service account.
    environ : mapping of str to str, optional
        Variables of the controller.
    user : str
        Whose cluster it is, and whose runs lie in its folder of a claim.
    """
    pod = _pod(spec, name, _scheduler_container(spec))
    pod["serviceAccountName"] = account
    pod["containers"].append(_controller_container(spec, name, environ or {}, user))
    pod["volumes"] += _controller_volumes(spec, name, user)
    template = kube_settings(spec).pod_template
    return pod if template is None else merged(pod, json.loads(template), container_fields=False)


def _scheduler_container(spec: ClusterSpec) -> Json:
    """It also ends the cluster when nobody renews its lease."""
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
        *_tls_variables("SCHEDULER"),
        _variable("JUPYTER_DDL_LEASE_S", str(kube_settings(spec).lease_s)),
        _variable("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", str(spec.worker_timeout_s)),
        _variable(
            "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES",
            json.dumps(["jupyter_ddl.backends.kubernetes.scheduler_pod"]),
        ),
    ]
    return container


def _controller_container(
    spec: ClusterSpec, name: str, environ: Mapping[str, str], user: str
) -> Json:
    """It has no probe: while it begins again, others must find the scheduler all the same."""
    container = _container(CONTROLLER, kube_settings(spec).image)
    claim, folder = claim_of(kube_settings(spec), user)
    if not folder:
        folder = f"{_FOLDER}/{user}" if claim and user else _FOLDER
    return {
        **container,
        "args": [*_DASK, CONTROLLER, _KEYS, str(CONTROLLER_PORT)],
        "ports": [{"name": CONTROLLER, "containerPort": CONTROLLER_PORT, "protocol": "TCP"}],
        "env": [
            *(each for each in container["env"] if each["name"] != "JUPYTER_DDL_HOME"),
            _variable("JUPYTER_DDL_HOME", f"{_HOME}/{folder}"),
            _variable("JUPYTER_RUNTIME_DIR", "/tmp/runtime"),
            _variable(CLUSTER_VARIABLE, name),
            *(_variable(key, value) for key, value in sorted(environ.items())),
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        },
        "volumeMounts": [
            {"name": "controller-scratch", "mountPath": "/tmp"},
            {"name": "controller-shm", "mountPath": "/dev/shm"},
            {"name": "home", "mountPath": _HOME},
            {"name": "tls", "mountPath": _TLS, "readOnly": True},
            {"name": "controller-keys", "mountPath": _KEYS, "readOnly": True},
            {"name": "account", "mountPath": _ACCOUNT, "readOnly": True},
        ],
    }


def _controller_volumes(spec: ClusterSpec, name: str, user: str) -> list[Json]:
    claim = claim_of(kube_settings(spec), user)[0]
    home: Json = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    keys = [{"key": each, "path": each} for each in (SPEC_FILE, *SERVER_FILES)]
    token = {"path": "token", "expirationSeconds": _TOKEN_S}
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    own = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    return [
        {"name": "controller-scratch", "emptyDir": {}},
        # On the node's disk: large blobs count for no container's memory, and survive a restart.
        {"name": "controller-shm", "emptyDir": {}},
        {"name": "home", **home},
        {
            "name": "controller-keys",
            "secret": {"secretName": f"{name}-controller", "items": keys, "defaultMode": 0o440},
        },
        {
            "name": "account",
            "projected": {
                "defaultMode": 0o440,
                "sources": [
                    {"serviceAccountToken": token},
                    {"configMap": root},
                    {"downwardAPI": {"items": [own]}},
                ],
            },
        },
    ]


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
        *_tls_variables("WORKER"),
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


def _tls_variables(role: str) -> list[Json]:
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    return [
        _variable(f"{prefix}CA_FILE", f"{_TLS}/tls.crt"),
        _variable(f"{prefix}{role}__CERT", f"{_TLS}/tls.crt"),
        _variable(f"{prefix}{role}__KEY", f"{_TLS}/tls.key"),
    ]


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
    account: str = "default",
    environ: Mapping[str, str] | None = None,
) -> Json:
    """The DaskCluster of which the operator makes everything else.

    Parameters
    ----------
    account, environ
        Of the controller: its service account, and variables.
    """
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "labels": names.labels_of(spec.name, user),
    }
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
                "spec": scheduler_pod(spec, name, account, environ, user),
                "service": {
                    "type": "ClusterIP",
                    "selector": selector,
                    "ports": [
                        _port("tcp-comm", COMM_PORT),
                        _port("http-dashboard", HTTP_PORT),
                        _port(CONTROLLER, CONTROLLER_PORT),
                    ],
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
