"""Who looks at a run of pods and is cut off again and again: a notebook here, or one in a pod."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jupyter_ddl.client.link import Mailbox
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.snapshot import RunSnapshot
from tests.kube.kube_tools import IMAGE, apply, kubectl

__all__ = ["USER", "KernelPod", "Seen"]

USER = "soak"
"""Every home, and every pod, is this person's."""


class Seen:
    """A run as somebody sees it who attaches again whenever he is cut off."""

    def __init__(self, cluster: str, run_id: str) -> None:
        self._cluster = cluster
        self.run_id = run_id
        self._mailbox: Mailbox | None = None
        self._last: RunSnapshot | None = None

    def look(self) -> RunSnapshot | None:
        """The newest snapshot; None: nothing was heard yet since the last cut."""
        if self._mailbox is None or self._mailbox.is_broken:
            self._last = None
            try:
                run_id = find_run(self.run_id)
                self._mailbox = session().watch(self._cluster, run_id)
            except JupyterDDLError:
                return None
        if (encoded := self._mailbox.take(0.0)) is not None:
            self._last = encoded.decode()
        return self._last

    def forget(self) -> None:
        self._mailbox = self._last = None

    def reached(self) -> int:
        """Something that grows while it goes on; -1: nothing is heard."""
        seen = self.look()
        if seen is None:
            return -1
        if seen.can.has_ranks:
            return -1 if seen.last_step is None else seen.last_step
        return seen.counts.finished


_SEEN = "/tmp/seen"
"""Of what a container prints, kubelets have been seen to keep not every line."""
_PROGRAM = """
import time
from jupyter_ddl.client.clusters import attach_cluster
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import JupyterDDLError

began_s, is_live = time.monotonic(), False
while True:
    try:
        attach_cluster({cluster!r})
        boxes = [session().watch({cluster!r}, run_id) for run_id in {runs!r}]
        while not any(box.is_broken for box in boxes):
            heard = [box.take(0.5) is not None or box.newest is not None for box in boxes]
            if all(heard) and not is_live:
                is_live = True
                with open("{seen}", "w") as file:
                    file.write(f"{{time.monotonic() - began_s:.2f}}")
    except JupyterDDLError as error:
        print("CUT", error.message, flush=True)
    time.sleep(0.05)
"""


class KernelPod:
    """A pod with a notebook's kernel in it, which watches runs, as on a JupyterHub."""

    def __init__(self, namespace: str, account: str, cluster: str, run_ids: Sequence[str]) -> None:
        self._namespace = namespace
        self._account = account
        self._program = _PROGRAM.format(cluster=cluster, runs=list(run_ids), seen=_SEEN)
        self._number = 0

    def make(self) -> None:
        self._number += 1
        apply(json.dumps(self._manifest()), self._namespace)

    def lose(self) -> None:
        """As if its node had been switched off; without effect if it is gone."""
        now = ["--grace-period=0", "--force", "--wait=false", "--ignore-not-found"]
        kubectl("delete", "pod", self._name, "-n", self._namespace, *now)

    def live_s(self) -> float | None:
        """Seconds from its first command until all runs were seen; None: not yet."""
        told = ["exec", self._name, "-n", self._namespace, "--", "cat", _SEEN]
        seen = kubectl(*told, check=False)
        return float(seen) if seen else None

    def log(self) -> str:
        return kubectl("logs", self._name, "-n", self._namespace, check=False)

    def state(self) -> tuple[str, str]:
        """Its phase, empty where it is gone, and the node it is on."""
        what = "jsonpath={.status.phase} {.spec.nodeName}"
        where = ["get", "pod", self._name, "-n", self._namespace, "-o", what]
        phase, _, node = kubectl(*where, check=False).partition(" ")
        return phase, node

    @property
    def _name(self) -> str:
        return f"kernel-{self._number}"

    def _manifest(self) -> dict[str, Any]:
        container = {
            "name": "kernel",
            "image": IMAGE,
            "command": ["python", "-c", self._program],
            "securityContext": {"runAsUser": 1000},
            "env": [
                {"name": "HOME", "value": "/tmp"},
                {"name": "JUPYTER_DDL_USER", "value": USER},
            ],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self._name},
            "spec": {
                "serviceAccountName": self._account,
                "terminationGracePeriodSeconds": 1,
                "restartPolicy": "Never",
                "containers": [container],
            },
        }
