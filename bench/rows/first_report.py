"""From ``submit`` to a torch trial's first report, on zygotes that have imported torch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.first_report")
_IMPORT = Probe("bench.rows.warm", ("torch",))

ROW = Row(
    name="first_report",
    title="First `report` of a torch trial on a warm zygote",
    better="lower",
    repeats=3,
    warmups=0,  # the probe's own first runs are thrown away
    note=(
        "Ten runs in each of the repeats, after two that are not counted. The cell imports torch, "
        "adds two tensors, reports, and goes on for 0.3 s as training would. Every run forks a "
        "fresh rank. Counted from the call of `submit`."
    ),
    lines=(
        Line("record on disk, read by the client", _OURS, "ledger_s", "s", Goal(0.1, "lower")),
        Line("`report` called in the rank", _OURS, "rank_s", "s"),
        Line("the attempt started in the rank", _OURS, "attempt_s", "s"),
        Line("`submit` returned", _OURS, "accepted_s", "s"),
        Line("a pushed snapshot shows the report", _OURS, "snapshot_s", "s"),
        Line("on disk, first run after the start (not warm yet)", _OURS, "cold_s", "s"),
        Line("`import torch` alone, fresh process", _IMPORT, "import_torch_s", "s", compare=True),
    ),
)

_CELL = """
import time
import torch
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
y = torch.ones(3) + torch.full((3,), x)
report(step=0, acc=float(y.sum()))
time.sleep(0.3)
"""
_DEADLINE_S = 20.0


def _watch_ledger(run_id: str, found: dict[str, float]) -> None:
    """Read the ledger as it grows, until the first report is on disk."""
    from jupyter_ddl.ledger.reader import LedgerReader
    from jupyter_ddl.protocol.events import AttemptStarted, Reported
    from jupyter_ddl.store.paths import ledger_path

    deadline = time.monotonic() + _DEADLINE_S
    with LedgerReader(ledger_path(run_id)) as reader:
        while time.monotonic() < deadline:
            for event in reader.poll():
                if isinstance(event, AttemptStarted):
                    found["attempt_s"] = event.at_s
                elif isinstance(event, Reported):
                    found["rank_s"] = event.at_s
                    found["ledger_s"] = time.time()
                    return
            time.sleep(0.001)


def _watch_snapshots(run_id: str, cluster: str, found: dict[str, float]) -> None:
    from jupyter_ddl.client.session import session

    mailbox = session().watch(cluster, run_id)
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        snapshot = mailbox.take(0.1)
        if snapshot is not None and any(row.metrics for row in snapshot.decode().rows):
            found["snapshot_s"] = time.time()
            return


def _one_run(cluster: str) -> dict[str, float]:

    from jupyter_ddl.cell.draft import CellContext
    from jupyter_ddl.client.submit import submit
    from jupyter_ddl.verbs.search import Search

    verb, options = Search.from_python({"metric": "acc", "trials": 1, "sampler": "random"})
    context = CellContext(cell_number=None, notebook_dir=Path.cwd())
    draft = verb.compile(_CELL, {}, context, options)
    found: dict[str, float] = {}
    started_at_s = time.time()
    started = time.perf_counter()
    run = submit(draft, cell=_CELL)
    accepted_s = time.perf_counter() - started
    watching = threading.Thread(target=_watch_snapshots, args=(run.id, cluster, found))
    watching.start()
    _watch_ledger(run.id, found)
    watching.join()
    run.wait(_DEADLINE_S)
    times = {name: at_s - started_at_s for name, at_s in found.items()}
    return {"accepted_s": accepted_s, **times}


def measure() -> None:
    import torch  # noqa: F401 - as in the user's kernel; zygotes import what the kernel has

    from jupyter_ddl.client.clusters import start_cluster

    n_runs = 4 if is_quick() else 10
    cluster = start_cluster(n_workers=2)
    try:
        cold, _, *runs = [_one_run(cluster.name) for _ in range(n_runs + 2)]
    finally:
        cluster.stop()
    warm = {name: [run[name] for run in runs] for name in runs[0]}
    tell({**warm, "cold_s": cold["ledger_s"]})


if __name__ == "__main__":
    measure()
