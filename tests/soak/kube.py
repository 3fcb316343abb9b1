"""Loses what runs in pods, and who watches it, in random order; times how each comes back.

A search and a training go on for the whole time on one cluster of pods whose runs lie on a claim.
They are watched from here, a host that does not see the network of pods, and from a pod.  Lost are
the mirror here, its connections to the API server, the notebook here with its whole home, the pod
that watches, the controller, its container, the scheduler's pod, workers' pods, and nodes.
``python -m tests.soak.kube --kills 200 --seed 1`` (with the variables of ``tools/kube_lab.sh``)
ends with a table, and with a status other than 0 when a promise broke.  Where the Kubernetes is no
lab on this machine, the kinds that need one are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import psutil

from jupyter_ddl.backends.kubernetes.access import role_manifest
from jupyter_ddl.client import session as sessions
from jupyter_ddl.client.api import train
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.client.session import session
from jupyter_ddl.client.start import start_controller
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import AttemptFinished
from jupyter_ddl.store.connection import read_connection
from tests.kube.kube_tools import (
    LAB,
    apply,
    delete_pod,
    gone,
    kube_cluster,
    kubectl,
    lab_up,
    lose_node,
    pods,
    processes_in,
    signal_controller,
    start_kube,
)
from tests.leaks import end_processes, new_home
from tests.run_tools import controller_pid, start_search
from tests.soak.outside import outside_of_pods, reset_connections
from tests.soak.watching import USER, KernelPod, Seen
from tests.until import until

__all__ = ["main"]

_NAME = "soak"
_ACCOUNT = "notebook"
_NODE, _CONTAINER = "node", "controller container"
_OF_LAB = ("port-forward", _CONTAINER, _NODE)
"""Kinds that need the nodes to be on this machine."""
_NODES = 0.05
"""Part of what is lost: each takes Kubernetes a minute, and everybody else along."""
_TEMPLATE = json.dumps(
    {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "200m"}}}]}
)
"""They sleep most of the time, and whatever else runs on the same nodes needs room as well."""
_PATIENCE_S = 240.0
_LONG_PATIENCE_S = {_NODE: 420.0, _CONTAINER: 420.0}
"""Kubernetes gives a node up after 40 s and its pods 20 s later; a container that ends again and
again, it begins 300 s later at last."""
_SEARCH = """
import time
from jupyter_ddl import checkpoint, report, resume, uniform
x = uniform(0.0, 1.0)
state = resume() or {"step": -1}
for step in range(state["step"] + 1, 20):
    time.sleep(0.2)
    report(step=step, score=x + step)
    if step % 5 == 4:
        checkpoint(step=step)
"""
_TRAINING = """
import time
from jupyter_ddl import checkpoint, prepare, rank, report, resume
import torch
torch.manual_seed(1)
state = resume()
model = torch.nn.Linear(8, 1)
if state:
    model.load_state_dict(state["model"])
model = prepare(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(32, 8)
for step in range(state["step"] + 1 if state else 0, 1_000_000):
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.1)
    report(step=step, loss=loss.item())
    if step % 10 == 9:
        checkpoint(step=step, model=model.module.state_dict())
"""


class Soak:
    """One soak, in a namespace of its own."""

    def __init__(self, namespace: str, options: argparse.Namespace) -> None:
        self._namespace = namespace
        self._chance = random.Random(options.seed)
        self._options = options
        self._homes = contextlib.ExitStack()
        self._runs: list[Seen] = []
        self._kernel: KernelPod | None = None
        self._lost = ""
        """The node that is."""
        self._coming: Thread | None = None
        self.took_s: defaultdict[str, list[float]] = defaultdict(list)
        self.live_s: defaultdict[str, list[float]] = defaultdict(list)
        """From the first command of who watches anew to a live snapshot."""
        self.loads: list[float] = []
        self.broken: list[str] = []
        self._kinds: dict[str, Callable[[], None]] = {
            "mirror": self._kill_mirror,
            "port-forward": self._reset_connections,
            "notebook": self._lose_notebook,
            "kernel pod": self._lose_kernel_pod,
            "controller": self._kill_controller,
            _CONTAINER: self._kill_container,
            "scheduler pod": lambda: self._delete("scheduler"),
            "worker pod": lambda: self._delete("worker"),
            _NODE: self._lose_node,
        }
        if not LAB.exists():
            for kind in _OF_LAB:
                del self._kinds[kind]

    def run(self) -> None:
        with self._homes:
            self._move_in()
            cluster = start_kube(
                self._namespace, 3, name=_NAME, home="pvc:runs", pod_template=_TEMPLATE
            )
            try:
                with contextlib.suppress(KeyboardInterrupt):  # the end comes early
                    self._soak()
            finally:
                self._whole_again()
                self._end(cluster)

    def _soak(self) -> None:
        search = start_search(_SEARCH, 100_000, max_parallel=1, max_failures=100_000)
        training = _start_training()
        self._runs = [Seen(_NAME, search.id), Seen(_NAME, training.id)]
        self._kernel = KernelPod(self._namespace, _ACCOUNT, _NAME, [search.id, training.id])
        self._kernel.make()
        self._wait_on(dict.fromkeys(self._runs, 0), "the beginning")
        until_s = time.monotonic() + 60.0 * self._options.minutes
        for number in range(self._options.kills):
            if self.broken or time.monotonic() > until_s:
                return
            kind = self._choose()
            before = {each: each.reached() for each in self._runs}
            began_s = time.monotonic()
            self._kinds[kind]()
            if not self._wait_on(before, kind):
                return
            self.took_s[kind].append(time.monotonic() - began_s)
            self.loads.append(os.getloadavg()[0])
            print(
                f"{number + 1:4} {time.strftime('%H:%M:%S')} {kind:20} "
                f"{self.took_s[kind][-1]:6.1f} s",
                flush=True,
            )
            self._whole_again()
            time.sleep(self._chance.uniform(0.0, 3.0))

    def _choose(self) -> str:
        kinds: list[str] = self._options.kinds or list(self._kinds)
        others = [kind for kind in kinds if kind != _NODE]
        if _NODE in kinds and (not others or self._chance.random() < _NODES):
            return _NODE
        return self._chance.choice(others)

    def _wait_on(self, before: dict[Seen, int], what: str) -> bool:
        """Until all runs are further than they were."""
        patience_s = _LONG_PATIENCE_S.get(what, _PATIENCE_S)
        deadline = time.monotonic() + patience_s
        left = list(before)
        while left:
            left = [each for each in left if each.reached() <= max(0, before[each])]
            if left and time.monotonic() > deadline:
                names = ", ".join(each.run_id for each in left)
                self.broken.append(f"{what}: {names} did not go on within {patience_s:.0f} s")
                return False
            time.sleep(0.05)
        return True

    # -- who watches -------------------------------------------------------------------------

    def _move_in(self) -> None:
        """A home that knows nothing of the cluster."""
        home = self._homes.enter_context(new_home())
        self._homes.callback(end_processes, home)
        os.environ.update(home.variables())
        sessions._session = None

    def _kill_mirror(self) -> None:
        info = read_connection(_NAME)
        if info is not None:
            os.kill(info.process.pid, signal.SIGKILL)

    def _reset_connections(self) -> None:
        mirror = psutil.Process(controller_pid(_NAME))
        until(lambda: reset_connections(mirror), 60.0, "a connection to the API server")

    def _lose_notebook(self) -> None:
        self._kill_mirror()
        session().close()
        for each in self._runs:
            each.forget()
        self._move_in()
        began_s = time.monotonic()
        while any(each.look() is None for each in self._runs):
            time.sleep(0.05)
            if time.monotonic() - began_s > _PATIENCE_S:
                self.broken.append("notebook: nothing is seen from a new one")
                return
        self.live_s["notebook"].append(time.monotonic() - began_s)

    def _lose_kernel_pod(self) -> None:
        self._judge_kernel_pod()
        kernel = self._kernel
        assert kernel is not None
        kernel.lose()
        kernel.make()
        deadline = time.monotonic() + _PATIENCE_S
        while (took_s := kernel.live_s()) is None:
            time.sleep(0.2)
            if time.monotonic() > deadline:
                self.broken.append(f"kernel pod: nothing is seen from a new one: {kernel.log()}")
                return
        self.live_s["kernel pod"].append(took_s)

    def _judge_kernel_pod(self) -> None:
        """It is to go on whatever else is lost, but for its node."""
        if self._kernel is not None and self._kernel.state()[0] not in ("Pending", "Running"):
            self.broken.append(f"kernel pod: it has ended by itself: {self._kernel.log()}")

    # -- who works ---------------------------------------------------------------------------

    def _kill_controller(self) -> None:
        """Not the first process of its container, which begins another one."""
        self._scheduler_pod()
        signal_controller(self._namespace, "SIGKILL")

    def _kill_container(self) -> None:
        processes_in(self._scheduler_pod(), "controller")[0].kill()

    def _scheduler_pod(self) -> str:
        """Its name: there is one, also where a former one had to be given up."""
        found: list[Any] = []

        def is_one() -> bool:
            found[:] = pods(self._namespace, "scheduler")
            return len(found) == 1

        until(is_one, 60.0, "one scheduler's pod")
        return str(found[0]["metadata"]["name"])

    def _delete(self, component: str) -> None:
        found = pods(self._namespace, component)
        if found:
            delete_pod(self._namespace, str(self._chance.choice(found)["metadata"]["name"]))

    def _lose_node(self) -> None:
        """One of those with pods of the cluster; half of them come back while they are missed."""
        found = [*pods(self._namespace, "scheduler"), *pods(self._namespace, "worker")]
        nodes = sorted({str(pod["spec"].get("nodeName", "")) for pod in found} - {""})
        node = self._chance.choice(nodes)
        is_back_soon, away_s = self._chance.random() < 0.5, self._chance.uniform(2.0, 30.0)
        self._lost = node
        lose_node(int(node.removeprefix("node")))
        print(f"     {node} is lost{f', for {away_s:.0f} s' if is_back_soon else ''}", flush=True)
        if is_back_soon:
            time.sleep(away_s)
            self._bring_back()

    def _bring_back(self) -> None:
        """Begin to; a node that has images to load takes minutes, and the runs may be on before."""
        self._coming = Thread(target=lab_up, args=("--nodes", "2"), daemon=True)
        self._coming.start()

    def _whole_again(self) -> None:
        if not self._lost:
            return
        if self._coming is None:
            self._bring_back()
        if self._coming is not None:
            self._coming.join()
        self._coming = None
        kernel, node = self._kernel, self._lost
        self._lost = ""
        if kernel is not None and kernel.state()[1] in ("", node):  # nobody makes it anew
            kernel.lose()
            kernel.make()

    # -- the end -----------------------------------------------------------------------------

    def _end(self, cluster: Cluster) -> None:
        if read_connection(_NAME) is None:
            sessions._session = None
            spec = kube_cluster(_NAME, 3, namespace=self._namespace)
            start_controller(spec, lambda _: None, "join")
        for seen in self._runs:
            with contextlib.suppress(JupyterDDLError):
                run = Run(find_run(seen.run_id))
                run.cancel()
                run.wait(60.0)
                self._judge(run)
        self._judge_kernel_pod()
        if self._kernel is not None:
            self._kernel.lose()
        cluster.stop()
        left_s = gone(self._namespace)
        print(f"nothing was left {left_s:.1f} s after the stop")
        if left_s > 60.0:
            self.broken.append(f"objects were left for {left_s:.0f} s after the stop")

    def _judge(self, run: Run) -> None:
        events = run.events()
        self.broken += [f"{run.id}: {fault}" for fault in audit(events)]
        ends = [each for each in events if isinstance(each, AttemptFinished)]
        done = [each.trial for each in ends if each.outcome == "complete"]
        if len(done) != len(set(done)):
            self.broken.append(f"{run.id}: {len(done) - len(set(done))} trials finished twice")
        print(f"{run.id}: {len(done)} trials complete, {len(ends) - len(done)} attempts lost")


def _start_training() -> Run:
    return train(_TRAINING, 2, namespace={}, max_restarts=100_000, wait=False)


@contextlib.contextmanager
def _namespace() -> Iterator[str]:
    """With a claim for runs, and an account that a notebook's pod has."""
    name = f"ddl-soak-{os.getpid()}"
    kubectl("create", "namespace", name)
    try:
        apply(json.dumps(_claim()), name)
        kubectl("create", "serviceaccount", _ACCOUNT, "-n", name)
        apply(role_manifest(name), name)
        bound = ["--role=jupyter-ddl", f"--serviceaccount={name}:{_ACCOUNT}"]
        kubectl("create", "rolebinding", _ACCOUNT, "-n", name, *bound)
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def _claim() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "runs"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def _table(soak: Soak) -> str:
    rows = [
        "| what was lost | times | goes on after: median | p95 | longest |",
        "|---|---|---|---|---|",
    ]
    anew = {f"(live view of a new {kind})": took for kind, took in soak.live_s.items()}
    for kind, seconds in sorted({**soak.took_s, **anew}.items()):
        if seconds:
            ordered = sorted(seconds)
            p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
            middle = statistics.median(ordered)
            rows.append(
                f"| {kind} | {len(ordered)} | {middle:.1f} s | {p95:.1f} s | {ordered[-1]:.1f} s |"
            )
    return "\n".join(rows)


def main() -> int:
    """The status is 0 when all promises held."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kills", type=int, default=200)
    words.add_argument("--minutes", type=float, default=600.0, help="no other kill after that")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--kinds", nargs="*", help="only these, as the table names them")
    options = words.parse_args()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.default_int_handler)
    os.environ["JUPYTER_DDL_USER"] = USER
    os.environ["JUPYTER_DDL_PREWARM"] = ""
    with _namespace() as namespace, outside_of_pods() if LAB.exists() else contextlib.nullcontext():
        os.environ["JUPYTER_DDL_NAMESPACE"] = namespace
        soak = Soak(namespace, options)
        soak.run()
    print(_table(soak))
    if soak.loads:
        loads = f"{min(soak.loads):.1f} to {max(soak.loads):.1f}"
        print(f"load {loads}, median {statistics.median(soak.loads):.1f}")
    print(f"promises that broke: {len(soak.broken)}", *soak.broken, sep="\n")
    return 1 if soak.broken else 0


if __name__ == "__main__":
    sys.exit(main())
