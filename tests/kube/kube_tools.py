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
from jupyter_ddl.backends.kubernetes.access import Need
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
    "in_pod",
    "kube_cluster",
    "kubectl",
    "lab_up",
    "lasting",
    "lose_node",
    "objects",
    "operator_processes",
    "pods",
    "processes_in",
    "renew_token",
    "restart_operator",
    "restarts",
    "signal_controller",
    "start_kube",
    "without",
]

IMAGE = os.environ.get("JUPYTER_DDL_TEST_IMAGE", "")
OTHER_IMAGE = os.environ.get("JUPYTER_DDL_TEST_OTHER_IMAGE", "ddl-operator:test")
"""One that the nodes have, and in which this package is not."""
LAB = Path(os.environ.get("JUPYTER_DDL_KUBELAB", "/nonexistent"))
OPERATOR = ("-n", "dask-operator")
OUTSIDE = dict(os.environ)
ADMIN = os.environ.get("KUBECONFIG", "")
"""Tests look with these credentials, also where the code under test has others."""
KINDS = (
    "pods,services,secrets,deployments,networkpolicies,daskclusters,daskworkergroups,jobs,"
    "serviceaccounts,roles,rolebindings"
)
_RIGHTS = {"ServiceAccount", "Role", "RoleBinding"}
_OF_TESTS = {"jupyter-ddl", "jupyter-ddl-controller", "notebook", "default"}
"""Accounts and rights that a namespace has beforehand."""

Json = dict[str, Any]


def lab_up(*args: str) -> None:
    """Start what does not run of the lab; it is no process of the test that does so.

    A node that is new has the images to load, which takes it minutes on a machine that is busy.
    """
    subprocess.run([LAB / "up", *args], check=True, capture_output=True, timeout=400, env=OUTSIDE)


def lose_node(number: int) -> None:
    """Cut a node of the lab off, so that no connection is closed in order, and end all of it."""
    link = f"kubelab-node{number}"
    subprocess.run(["ip", "link", "set", link, "down"], check=True, timeout=10)
    down = [str(LAB / "down"), "--node", str(number)]
    subprocess.run(down, check=True, capture_output=True, timeout=90)
    # Connections that nobody has answered keep the link, and a node that comes needs its name.
    subprocess.run(["ip", "link", "del", link], check=False, capture_output=True, timeout=10)


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
        and not (each["kind"] in _RIGHTS and each["metadata"]["name"] in _OF_TESTS)
    )


def gone(namespace: str, timeout_s: float = 90.0) -> float:
    """Wait until nothing is left of any cluster; returns the seconds it took.

    Pods that were deleted and whose containers have ended are nothing: kubelets before 1.22 take
    up to a minute to say so of some of them.
    """
    began_s = time.monotonic()
    until(lambda: not lasting(namespace), timeout_s, f"{lasting(namespace)} to go")
    return time.monotonic() - began_s


def lasting(namespace: str) -> list[str]:
    """What there is of clusters, but for pods that were deleted and have ended."""
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


def without(need: Need, namespace: str, role_name: str = "jupyter-ddl") -> None:
    """Take one verb from a Role, as an administrator."""
    role = json.loads(kubectl("get", "role", role_name, "-n", namespace, "-o", "json"))
    for rule in role["rules"]:
        if need.full_resource in rule["resources"] and need.group in rule["apiGroups"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != need.verb]
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    kubectl("replace", "-f", "-", stdin=json.dumps(role))


def delete_pod(namespace: str, name: str) -> None:
    """As if its node had been switched off: no signal, no grace."""
    kubectl("delete", "pod", name, "-n", namespace, "--grace-period=0", "--force", "--wait=false")


def apply(manifest: str, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)


def processes_in(pod: str, container: str) -> list[psutil.Process]:
    """Of a container of ours, the first one first: nodes of the lab are on this machine."""
    found = []
    for process in psutil.process_iter(["cmdline", "create_time"]):
        words = process.info["cmdline"] or []
        if container not in words or "jupyter_ddl.backends.kubernetes.pod_main" not in words:
            continue
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOSTNAME") == pod:
                found.append(process)
    return sorted(found, key=lambda each: (each.info["create_time"], each.pid))


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
    """This user's clusters there that nothing of this home stands for."""
    here = {info.name for info in list_connections()}
    found = client_loop().call(find_clusters(namespace), 30.0)
    return [each for each in found if each.name not in here]


_OTHERS = """
import os, signal
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        os.kill(int(name), signal.{signum})
"""


def signal_controller(namespace: str, signum: str) -> None:
    """Signal the processes of its container, but for the first one."""
    in_pod(namespace, "controller", _OTHERS.format(signum=signum))


def restarts(namespace: str, container: str) -> int:
    """How often a container of the scheduler's pod was begun again."""
    (pod,) = pods(namespace, "scheduler")
    found = [each for each in _statuses(pod) if each["name"] == container]
    return int(found[0]["restartCount"]) if found else 0


def in_pod(namespace: str, container: str, code: str) -> str:
    """Run a line of Python in a container of the scheduler's pod."""
    (pod,) = pods(namespace, "scheduler")
    where = ["exec", pod["metadata"]["name"], "-n", namespace, "-c", container]
    return kubectl(*where, "--", "python", "-c", code, check=False)


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
