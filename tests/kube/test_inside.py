"""The notebook in a pod, as on a JupyterHub: what it has started goes on when it is culled."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.access import role_manifest
from tests.kube.kube_tools import IMAGE, apply, delete_pod, gone, items, kubectl
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.slow, pytest.mark.timeout(500)]

_SAY = """
def say(*words):
    with open("/tmp/said", "a") as file:
        print(*words, file=file)
"""
_FIRST = """
from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.api import search
cluster = start_cluster("kube", 1, on_phase=say)
cell = '''
import time
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
for step in range(100):
    time.sleep(0.25)
    report(step=step, score=x)
'''
run = search(cell, namespace={}, metric="score", trials=1, wait=False)
import time
while not run.snapshot().counts.running:
    time.sleep(0.1)
say("RUNNING")
time.sleep(600)
"""
_SECOND = """
import time
from jupyter_ddl.client.clusters import attach_cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl import runs
began = time.monotonic()
cluster = attach_cluster("kube")
(summary,) = runs()
run = Run(summary.run_id)
say("SEEN", run.snapshot().counts, f"{time.monotonic() - began:.1f} s")
run.wait()
say("ENDED", run.state, len(run.trials), int(run.trials.attempts.sum()))
time.sleep(600)
"""
_STOP = "from jupyter_ddl.client.clusters import attach_cluster; attach_cluster('kube').stop()"


def _pod(name: str, program: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "serviceAccountName": "notebook",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "notebook",
                    "image": IMAGE,
                    "command": ["python", "-c", _SAY + program],
                    "securityContext": {"runAsUser": 1000},
                    "env": [
                        {"name": "JUPYTER_IMAGE_SPEC", "value": IMAGE},
                        {"name": "HOME", "value": "/tmp"},
                        {"name": "JUPYTERHUB_USER", "value": "ann"},
                    ],
                }
            ],
        },
    }


def test_a_cluster_outlives_the_notebooks_pod_and_is_used_from_the_next(namespace: str) -> None:
    kubectl("create", "serviceaccount", "notebook", "-n", namespace)
    apply(role_manifest(namespace), namespace)
    kubectl(
        "create", "rolebinding", "notebook", "-n", namespace, "--role=jupyter-ddl",
        f"--serviceaccount={namespace}:notebook",
    )  # fmt: skip
    apply(json.dumps(_pod("first", _FIRST)), namespace)
    _said(namespace, "first", "RUNNING")
    (before,) = items("daskclusters", namespace)
    delete_pod(namespace, "first")
    apply(json.dumps(_pod("second", _SECOND)), namespace)
    said = _said(namespace, "second", "ENDED")
    print(said)
    assert "ENDED complete 1 1" in said, "nothing was repeated"
    (after,) = items("daskclusters", namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    kubectl("exec", "second", "-n", namespace, "--", "python", "-c", _STOP)
    kubectl("delete", "pod", "second", "-n", namespace, "--wait=false")
    began_s = time.monotonic()
    gone(namespace)
    print(f"nothing was left {time.monotonic() - began_s:.1f} s later")


def _said(namespace: str, pod: str, word: str) -> str:
    """What a pod has said, once a word is in it.

    From a file: of what a container prints, kubelets have been seen to keep not every line.
    """
    told = ["exec", pod, "-n", namespace, "--", "cat", "/tmp/said"]
    try:
        until(lambda: word in kubectl(*told, check=False), 180)
    except AssertionError:
        said, printed = kubectl(*told, check=False), kubectl("logs", pod, "-n", namespace)
        raise AssertionError(f"pod {pod} said no {word}, but:\n{said}\n{printed}") from None
    return kubectl(*told)
