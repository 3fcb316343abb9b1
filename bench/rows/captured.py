"""A large captured array: copies in memory, what is written twice, and the time to dispatch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bench.harness import Goal, Line, Probe, Row, tell

_OURS = Probe("bench.rows.captured")

ROW = Row(
    name="captured",
    title="A captured 1 GB array on 2 ranks",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "Both ranks read every page and stay alive until they have been looked at. Copies: the sum "
        "of the ranks' proportional set sizes (Pss) over the size of the array; two private copies "
        "would give 2. The notebook's own array is not counted. Dispatch: from the call of "
        "`search` to its return with `wait=False`."
    ),
    lines=(
        Line("copies in memory for 2 ranks", _OURS, "copies", "", Goal(1.1, "lower")),
        Line("private memory of a rank", _OURS, "private_mb", "MB"),
        Line(
            "written on the second run of the cell",
            _OURS,
            "second_bytes",
            "bytes",
            Goal(0, "lower"),
        ),
        Line("dispatch, second run", _OURS, "second_dispatch_s", "s", Goal(1.0, "lower")),
        Line("dispatch, first run", _OURS, "first_dispatch_s", "s", Goal(1.0, "lower")),
        Line("… of it: hashing alone", _OURS, "hash_s", "s"),
        Line("… of it: writing to shared memory alone", _OURS, "write_s", "s"),
        Line("both ranks have read it all (second run)", _OURS, "read_s", "s"),
    ),
)

_CELL = """
import os, time
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
report(step=0, acc=float(X.sum()) + x)
while not os.path.exists(go_on):
    time.sleep(0.01)
"""
_DEADLINE_S = 60.0


def _rank_pids(run: Any) -> list[int]:
    """Pids of both ranks, as soon as both have reported."""
    from jupyter_ddl.protocol.events import AttemptStarted, Reported

    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        events = run.events()
        if sum(isinstance(event, Reported) for event in events) == 2:
            return [event.pid for event in events if isinstance(event, AttemptStarted)]
        time.sleep(0.01)
    raise TimeoutError(f"two ranks have not reported: {run}")


def _memory_kb(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def _blobs(run: Any) -> dict[Path, int]:
    """Files that hold this run's captures, with their inodes: a rewritten one has another."""
    from jupyter_ddl.store.blobs import find_blob
    from jupyter_ddl.store.paths import blob_dirs

    program = run.spec.program
    digests = [*program.buffers, *([program.payload] if program.payload else [])]
    paths = [find_blob(digest, blob_dirs()) for digest in digests]
    return {path: path.stat().st_ino for path in paths if path is not None}


def _pieces(array: Any) -> dict[str, float]:
    """What the two steps cost by themselves."""
    from jupyter_ddl.store.blobs import digest_of, put_blob
    from jupyter_ddl.store.paths import blob_dirs

    view = memoryview(array).cast("B")
    started = time.perf_counter()
    digest = digest_of(view)
    hashed = time.perf_counter()
    put_blob(view, blob_dirs(), digest + "-bench")
    written = time.perf_counter()
    for folder in blob_dirs():
        (folder / f"{digest}-bench").unlink(missing_ok=True)
    return {"hash_s": hashed - started, "write_s": written - hashed}


def measure() -> None:
    import numpy as np

    from jupyter_ddl.client.api import search
    from jupyter_ddl.client.clusters import start_cluster

    n_bytes = 10**9
    # Its own content, so that no blob of an earlier run is found.
    array = np.arange(n_bytes // 8, dtype=np.float64) + time.time()
    flag = Path(os.environ["JUPYTER_DDL_HOME"]).parent / "go-on"
    namespace = {"X": array, "go_on": str(flag)}
    cluster = start_cluster(n_workers=2)
    figures: dict[str, float] = {}
    blobs: dict[Path, int] = {}
    try:
        for which in ("first", "second"):
            flag.unlink(missing_ok=True)
            started = time.perf_counter()
            run = search(
                _CELL, metric="acc", trials=2, sampler="random", wait=False, namespace=namespace
            )
            figures[f"{which}_dispatch_s"] = time.perf_counter() - started
            pids = _rank_pids(run)
            figures["read_s"] = time.perf_counter() - started
            memory = [_memory_kb(pid) for pid in pids]
            flag.touch()
            run.wait(_DEADLINE_S)
            now = _blobs(run)
            new = [path for path, inode in now.items() if blobs.get(path) != inode]
            figures[f"{which}_bytes"] = float(sum(path.stat().st_size for path in new))
            blobs = now
        figures["copies"] = sum(rank["Pss"] for rank in memory) * 1024 / n_bytes
        figures["private_mb"] = max(rank["Private_Dirty"] for rank in memory) * 1024 / 1e6
        tell({**figures, **_pieces(array)})
    finally:
        flag.touch()
        cluster.stop()
        for path in blobs:
            path.unlink(missing_ok=True)  # shared memory outlives the temporary home


if __name__ == "__main__":
    measure()
