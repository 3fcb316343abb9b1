"""Clusters of pods: start, end, what travels, and what a lost pod costs.

Needs KUBECONFIG, the operator, and JUPYTER_DDL_TEST_IMAGE: `eval "$(tools/kube_lab.sh)"`.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from typing import Any

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.kube")

ROW = Row(
    name="kube",
    title="Clusters on Kubernetes",
    better="lower",
    repeats=1,
    warmups=0,
    note=(
        "Image present on the node. Start: from the call to two connected workers. Ended: from the "
        "return of `stop` until nothing is left but pods without a running container; gone: until "
        "the API server knows no object any more (kubelets before 1.22 report the end of some pods "
        "up to a minute late). Moved: "
        "from the deletion of a worker's pod (no grace) in mid-trial to the trial's next start. "
        "Captured: from the call to the first report, by a cell that reads a 400 MB array."
    ),
    lines=(
        Line("start kube -n 2, median", _OURS, "start_s", "s", Goal(8.0, "lower")),
        Line("start kube -n 2, slowest", _OURS, "slowest_s", "s"),
        Line("clusters that did not start", _OURS, "n_failed", "", Goal(0, "lower")),
        Line("all ended after stop, slowest", _OURS, "ended_s", "s", Goal(30.0, "lower")),
        Line("objects gone after stop, slowest", _OURS, "gone_s", "s", Goal(30.0, "lower")),
        Line("trial moved after its pod was deleted", _OURS, "moved_s", "s", Goal(10.0, "lower")),
        Line("first report with 400 MB captured", _OURS, "captured_s", "s"),
    ),
)

_STEPS = """
import time
from jupyter_ddl import checkpoint, report, resume, uniform
x = uniform(0.0, 1.0)
state = resume()
for step in range(0 if state is None else state["step"] + 1, 40):
    time.sleep(0.1)
    report(step=step, score=x)
    checkpoint(step=step, x=x)
"""
_READS = """
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
report(step=0, score=float(X.sum()) * 0 + x)
"""
_KINDS = "pods,services,deployments,networkpolicies,daskclusters,daskworkergroups"
_DEADLINE_S = 120.0


def _kubectl(*args: str) -> str:
    return subprocess.run(
        ["kubectl", *args], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def _until(condition: Any, what: str) -> float:
    began_s = time.perf_counter()
    while not condition():
        if time.perf_counter() - began_s > _DEADLINE_S:
            raise TimeoutError(what)
        time.sleep(0.05)
    return time.perf_counter() - began_s


def _objects(namespace: str) -> list[str]:
    return _kubectl("get", _KINDS, "-n", namespace, "-o", "name").split()


def _lasting(namespace: str) -> list[str]:
    """Objects, less pods that were deleted and whose containers have ended."""
    pods = json.loads(_kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    ended = {
        f"pod/{pod['metadata']['name']}"
        for pod in pods
        if "deletionTimestamp" in pod["metadata"]
        and not any(
            "running" in each["state"] for each in pod["status"].get("containerStatuses", [])
        )
    }
    return [each for each in _objects(namespace) if each not in ended]


def _start(namespace: str) -> Any:
    from jupyter_ddl.client.clusters import start_cluster

    image = os.environ["JUPYTER_DDL_TEST_IMAGE"]
    return start_cluster("kube", 2, image=image, namespace=namespace)


def _moved_s(namespace: str) -> float:
    from jupyter_ddl.client.api import search
    from jupyter_ddl.protocol.events import AttemptStarted

    run = search(_STEPS, namespace={}, metric="score", trials=1, wait=False)
    _until(lambda: len(list(run.directory.glob("checkpoints/*/*.ckpt"))) == 2, "a checkpoint")
    worker = run.trials["worker"].iloc[0]
    pods = _kubectl("get", "pods", "-n", namespace, "-o", "name").split()
    (pod,) = [each for each in pods if worker in each]
    began_s = time.perf_counter()
    _kubectl("delete", pod, "-n", namespace, "--grace-period=0", "--force", "--wait=false")
    _until(
        lambda: sum(isinstance(each, AttemptStarted) for each in run.events()) == 2, "a new start"
    )
    moved_s = time.perf_counter() - began_s
    run.wait(_DEADLINE_S)
    return moved_s


def _captured_s() -> float:
    import numpy as np

    from jupyter_ddl.client.api import search

    array = np.arange(50_000_000, dtype=float) + time.time()
    began_s = time.perf_counter()
    search(_READS, namespace={"X": array}, metric="score", trials=1)
    return time.perf_counter() - began_s


def measure() -> None:
    from jupyter_ddl.errors import ClusterError

    namespace = f"ddl-bench-{secrets.token_hex(3)}"
    _kubectl("create", "namespace", namespace)
    starts: list[float] = []
    ended: list[float] = []
    gone: list[float] = []
    figures: dict[str, float] = {}
    refusals: list[str] = []
    try:
        for number in range(2 if is_quick() else 8):
            began_s = time.perf_counter()
            try:
                cluster = _start(namespace)
            except ClusterError as error:
                refusals.append(f"start {number + 1}: {error.message}")
                continue
            starts.append(time.perf_counter() - began_s)
            if "moved_s" not in figures:
                figures["moved_s"] = _moved_s(namespace)
                figures["captured_s"] = _captured_s()
            cluster.stop()
            ended.append(_until(lambda: not _lasting(namespace), "the end"))
            gone.append(ended[-1] + _until(lambda: not _objects(namespace), "the end of all"))
        figures["n_failed"] = float(len(refusals))
        if starts:
            figures["start_s"] = sorted(starts)[len(starts) // 2]
            figures["slowest_s"], figures["ended_s"] = max(starts), max(ended)
            figures["gone_s"] = max(gone)
        tell(figures, {"n_failed": refusals})
    finally:
        _kubectl("delete", "namespace", namespace, "--wait=false")


if __name__ == "__main__":
    measure()
