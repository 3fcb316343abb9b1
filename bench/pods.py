"""What a cluster of pods costs its user: its start, a report's way to the view, losing a worker.

``python -m bench.pods IMAGE --tries 10 --namespace NAME``, with a KUBECONFIG: each try starts a
cluster of two workers, runs a cell whose reports hold their own time, and scales down by one.  The
clocks of nodes and of this machine have to agree for the report's way, as they do in a cluster on
this machine.  It has a home of its own, and leaves nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.harness import ROOT
from jupyter_ddl.client.api import search
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__: list[str] = []

_CELL = """
import time
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
for step in range(60):
    time.sleep(0.1)
    report(step=step, score=time.time())
"""
_PATIENCE_S = 120.0


class _Tries:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def one(self, number: int) -> None:
        began_s = time.monotonic()
        settings = {"image": self._options.image, "namespace": self._options.namespace}
        spec = ClusterSpec(f"bench{number}", "kube", 2, settings=settings, start_timeout_s=300.0)
        cluster = Cluster(session().start(spec, lambda _: None))
        try:
            self.seconds["start -n 2, to two connected workers"].append(time.monotonic() - began_s)
            self._reports(spec.name)
            self._scale_down(cluster)
        finally:
            began_s = time.monotonic()
            cluster.stop()
            self.seconds["stop"].append(time.monotonic() - began_s)

    def _reports(self, cluster: str) -> None:
        run = search(_CELL, namespace={}, metric="score", trials=1, wait=False)
        mailbox = session().watch(cluster, run.id)
        seen = -1
        while not mailbox.is_broken:
            encoded = mailbox.take(_PATIENCE_S)
            if encoded is None:
                raise SystemExit(f"no snapshot of {run.id} within {_PATIENCE_S:.0f} s")
            now_s, snapshot = time.time(), encoded.decode()
            if snapshot.finished_at_s is not None:
                return
            for row in snapshot.rows:
                score = row.metrics.get("score")
                if row.step is not None and row.step > seen and score is not None:
                    seen = row.step
                    self.seconds["report in a pod to a view here"].append(now_s - score)

    def _scale_down(self, cluster: Cluster) -> None:
        began_s = time.monotonic()
        cluster.scale(1)
        while len(cluster.status().workers) > 1:
            if time.monotonic() - began_s > _PATIENCE_S:
                raise SystemExit("two workers are there still")
            time.sleep(0.02)
        self.seconds["scale from 2 to 1, until one is left"].append(time.monotonic() - began_s)
        while self._n_worker_pods(cluster.name) > 1:
            if time.monotonic() - began_s > _PATIENCE_S:
                raise SystemExit("the pod of a worker is there still")
            time.sleep(0.1)
        self.seconds["… until its pod has ended"].append(time.monotonic() - began_s)

    def _n_worker_pods(self, cluster: str) -> int:
        """Those that run, or are about to."""
        listed = subprocess.run(
            ["kubectl", "get", "pods", "-n", self._options.namespace, "--no-headers"],
            capture_output=True,
            text=True,
            check=True,
        )
        return sum(
            "-worker-" in line and "Terminating" not in line and line.startswith(cluster)
            for line in listed.stdout.splitlines()
        )


def _p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("image", help="one that the nodes have or can pull")
    words.add_argument("--tries", type=int, default=10)
    words.add_argument("--namespace", default="default")
    options = words.parse_args()
    tries = _Tries(options)
    with tempfile.TemporaryDirectory(prefix="ddl-bench-") as home:
        os.environ["JUPYTER_DDL_HOME"] = str(Path(home) / "home")
        os.environ["JUPYTER_RUNTIME_DIR"] = str(Path(home) / "runtime")
        for number in range(options.tries):
            tries.one(number)
            print(f"{number + 1} of {options.tries}, load {os.getloadavg()[0]:.1f}", flush=True)
        session().close()
    print("| what | n | median | 95th percentile | longest |\n|---|---|---|---|---|")
    for what, values in tries.seconds.items():
        middle, p95 = statistics.median(values), _p95(values)
        print(f"| {what} | {len(values)} | {middle:.2f} s | {p95:.2f} s | {max(values):.2f} s |")
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    print("commit", subprocess.run(commit, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
