"""A real Kubernetes seen from outside: with kubectl, not with the code under test."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from jupyter_ddl.backends.base import FoundCluster
from jupyter_ddl.backends.kubernetes.lifetime import find_clusters
from jupyter_ddl.backends.kubernetes.settings import KubeSettings
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.link import client_loop
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.connection import list_connections
from tests.until import until

__all__ = [
    "IMAGE",
    "LAB",
    "OPERATOR",
    "OTHER_IMAGE",
    "api_server_restarts",
    "apply",
    "delete_pod",
    "elsewhere",
    "gone",
    "kube_cluster",
    "kubectl",
    "lab_up",
    "objects",
    "operator_processes",
    "pods",
    "renew_token",
    "restart_operator",
    "start_kube",
]

IMAGE = os.environ.get("JUPYTER_DDL_TEST_IMAGE", "")
OTHER_IMAGE = os.environ.get("JUPYTER_DDL_TEST_OTHER_IMAGE", "ddl-operator:test")
"""One that the nodes have, and in which this package is not."""
LAB = Path(os.environ.get("JUPYTER_DDL_KUBELAB", "/nonexistent"))
OPERATOR = ("-n", "dask-operator")
OUTSIDE = dict(os.environ)
ADMIN = os.environ.get("KUBECONFIG", "")
"""Tests look with these credentials, also where the code under test has others."""
KINDS = "pods,services,secrets,deployments,networkpolicies,daskclusters,daskworkergroups"

Json = dict[str, Any]


def lab_up(*args: str) -> None:
    """Start what does not run of the lab; it is no process of the test that does so.

    A node that is new has the images to load, which takes it minutes on a machine that is busy.
    """
    subprocess.run([LAB / "up", *args], check=True, capture_output=True, timeout=400, env=OUTSIDE)


def kubectl(*args: str, stdin: str | None = None, check: bool = True) -> str:
    """What kubectl prints."""
    done = subprocess.run(
        ["kubectl", *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "KUBECONFIG": ADMIN},
    )
    if check and done.returncode:
        raise AssertionError(f"kubectl {' '.join(args)}: {done.stderr}")
    return done.stdout


def items(kinds: str, namespace: str, *args: str) -> list[Json]:
    text = kubectl("get", kinds, "-n", namespace, "-o", "json", *args)
    found: list[Json] = json.loads(text)["items"]
    return found


def objects(namespace: str) -> list[str]:
    """Everything that a cluster is made of, as ``Kind/name``."""
    found = items(KINDS, namespace)
    return sorted(
        f"{each['kind']}/{each['metadata']['name']}"
        for each in found
        if each.get("type") != "kubernetes.io/service-account-token"
    )


def gone(namespace: str, timeout_s: float = 90.0) -> float:
    """Wait until nothing is left of any cluster; returns the seconds it took.

    Pods that were deleted and whose containers have ended are nothing: kubelets before 1.22 take
    up to a minute to say so of some of them.
    """
    began_s = time.monotonic()
    until(lambda: not _lasting(namespace), timeout_s, f"{_lasting(namespace)} to go")
    return time.monotonic() - began_s


def _lasting(namespace: str) -> list[str]:
    ended = {
        f"Pod/{pod['metadata']['name']}"
        for pod in items("pods", namespace)
        if "deletionTimestamp" in pod["metadata"]
        and not any("running" in each["state"] for each in _statuses(pod))
    }
    return [each for each in objects(namespace) if each not in ended]


def _statuses(pod: Json) -> list[Json]:
    found: list[Json] = pod["status"].get("containerStatuses", [])
    return found


def pods(namespace: str, component: str) -> list[Json]:
    """Pods of a component that are not being deleted, by name."""
    selector = f"dask.org/component={component}"
    found = items("pods", namespace, "-l", selector)
    return sorted(
        (each for each in found if "deletionTimestamp" not in each["metadata"]),
        key=lambda each: str(each["metadata"]["name"]),
    )


def delete_pod(namespace: str, name: str) -> None:
    """As if its node had been switched off: no signal, no grace."""
    kubectl("delete", "pod", name, "-n", namespace, "--grace-period=0", "--force", "--wait=false")


def apply(manifest: str, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)


def operator_processes() -> list[psutil.Process]:
    """Of the lab's operator, whose node is on this machine."""
    program = "dask_kubernetes.operator.controller"
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if program in (each.info["cmdline"] or ())]


def restart_operator() -> None:
    """Have one that is not deaf.

    kopf's watchers end for good at a 404, which an API server gives while it starts: the operator
    goes on, answers its probe, and does not see clusters or worker groups any more.
    """
    kubectl(*OPERATOR, "rollout", "restart", "deployment/dask-operator")
    kubectl(*OPERATOR, "rollout", "status", "deployment/dask-operator", "--timeout=80s")


@contextlib.contextmanager
def api_server_restarts() -> Iterator[None]:
    """The API server is killed now, and comes back meanwhile."""
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "kube-apiserver":
            process.kill()
            process.wait(10)

    def start() -> None:
        lab_up()
        restart_operator()

    starting = threading.Thread(target=start)
    starting.start()
    try:
        yield
    finally:
        starting.join(120)


def elsewhere(namespace: str) -> list[FoundCluster]:
    """This user's clusters there that no controller of this home holds."""
    here = {info.process.token for info in list_connections()}
    found = client_loop().call(find_clusters(namespace), 30.0)
    return [each for each in found if each.owner not in here]


def kube_cluster(name: str = "kube", n_workers: int | None = None, **kube: Any) -> ClusterSpec:
    """A cluster of these settings."""
    settings = msgspec.to_builtins(KubeSettings(**{"image": IMAGE, **kube}))
    return ClusterSpec(name, "kube", n_workers, settings=settings, start_timeout_s=900.0)


def start_kube(
    namespace: str,
    n_workers: int,
    *,
    name: str = "kube",
    on_phase: Callable[[str], None] = lambda text: None,
    **kube: Any,
) -> Cluster:
    """A cluster of pods; the phases of its start are printed, and handed to ``on_phase``."""
    began_s = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.2f} s  {text}")
        on_phase(text)

    spec = kube_cluster(name, n_workers, namespace=namespace, **kube)
    return Cluster(session().start(spec, tell))


def renew_token(namespace: str, kubeconfig: Path) -> None:
    """Have credentials of the account ``notebook``, new ones; the former are none any more."""
    kubectl("delete", "secret", "notebook-token", "-n", namespace, "--ignore-not-found")
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": _token(namespace)}
    kubeconfig.write_text(json.dumps(config))


def _token(namespace: str) -> str:
    """Of the account: made by the controllers of old versions, asked for from new ones."""
    secret = """
apiVersion: v1
kind: Secret
metadata: {name: notebook-token, annotations: {kubernetes.io/service-account.name: notebook}}
type: kubernetes.io/service-account-token
"""
    where = ["get", "secret", "notebook-token", "-n", namespace, "-o", "jsonpath={.data.token}"]

    def read() -> str:
        apply(secret, namespace)  # one of an account that is not known yet may be taken away
        return kubectl(*where, check=False)

    return base64.b64decode(until(read, 60)).decode()
