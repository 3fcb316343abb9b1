"""Starts real runs for tests, finds the processes below a controller, compares what came out."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from jupyter_ddl.client.api import map_cell, search
from jupyter_ddl.client.run import Run
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.store.connection import read_connection
from tests.until import until

__all__ = [
    "SLEEPING",
    "STEPS",
    "assert_clean",
    "controller_pid",
    "fill",
    "kill_controller",
    "outcomes",
    "sources",
    "start_map",
    "start_search",
    "starts",
    "table",
    "wait_for",
    "worker_of",
    "workers",
    "zygote_of",
    "zygotes",
]

STEPS = """
import time
from jupyter_ddl import checkpoint, report, uniform
x = uniform(0.0, 1.0)
for step in range(4):
    time.sleep(0.05)
    report(step=step, score=x + step)
    checkpoint(step=step, x=x)
"""
"""A trial of 0.2 s that reports and saves."""

_SOURCE = "jupyter_ddl.ranks.zygote_source"

SLEEPING = """
import time
from jupyter_ddl import uniform
x = uniform(0.0, 1.0)
time.sleep(600)
score = x
"""
"""A trial that never reports and takes ten minutes."""


def start_search(cell: str, trials: int, **options: Any) -> Run:
    """A search that runs in the background; what it maximizes is ``score``."""
    return search(
        cell, namespace={}, **{"metric": "score", "trials": trials, "wait": False, **options}
    )


def start_map(cell: str, items: Sequence[Any], **options: Any) -> Run:
    """A map over ``items`` that runs in the background; the cell sees ``item``."""
    return map_cell(cell, list(items), namespace={}, **{"wait": False, **options})


def wait_for(
    run: Run, condition: Callable[[RunSnapshot], bool], timeout_s: float = 30.0
) -> RunSnapshot:
    """The first snapshot, as the ledger tells, for which ``condition`` holds."""
    seen: list[RunSnapshot] = []

    def poll() -> bool:
        seen[:] = [run.snapshot()]
        return condition(seen[0])

    with contextlib.suppress(AssertionError):
        until(poll, timeout_s)
        return seen[0]
    raise AssertionError(f"not within {timeout_s:g} s; the run is {seen[0]}")


def controller_pid(name: str = "test") -> int:
    """Pid of the live controller of a cluster, waited for up to 30 s."""
    return until(lambda: read_connection(name), 30.0, f"cluster {name}").process.pid


def kill_controller(name: str = "test") -> None:
    """SIGKILL, and wait until its connection counts as stale."""
    pid = controller_pid(name)
    os.kill(pid, signal.SIGKILL)
    until(lambda: read_connection(name) is None, 5.0, "the end of the controller")


def workers(name: str = "test") -> list[psutil.Process]:
    """Dask workers of a cluster, by pid."""
    others = (_SOURCE, "resource_tracker")  # beside the server that forks them
    return _below(name, lambda words: not any(each in " ".join(words) for each in others))


def sources(name: str = "test") -> list[psutil.Process]:
    """The process from which a cluster's zygotes are forked, if there is one."""
    return [each for each in _children_of(name) if _SOURCE in _words_of(each)]


def zygotes(name: str = "test") -> list[psutil.Process]:
    """What was forked from that process, by pid."""
    return _below(name, lambda words: _SOURCE in words)


def zygote_of(worker: psutil.Process, name: str = "test") -> list[psutil.Process]:
    """A worker's zygotes: they share a pipe with it, by which they hear of its end."""
    own = _pipes_of(worker.pid)
    return [each for each in zygotes(name) if own & _pipes_of(each.pid)]


def worker_of(rank_pid: int) -> psutil.Process:
    """The worker whose zygote has forked a rank."""
    zygote = psutil.Process(rank_pid).parent()
    above = zygote.parent()
    if _SOURCE not in _words_of(above):
        return above  # which has started it itself
    others = [each for child in above.parent().children() for each in child.children()]
    pipes = _pipes_of(zygote.pid)
    found = [p for p in others if p.pid != zygote.pid and pipes & _pipes_of(p.pid)]
    if len(found) != 1:
        raise psutil.NoSuchProcess(zygote.pid, msg=f"its worker is gone, or one of {found}")
    return found[0]


def _children_of(name: str) -> list[psutil.Process]:
    info = read_connection(name)
    with contextlib.suppress(psutil.Error):
        return psutil.Process(info.process.pid).children() if info else []
    return []


def _below(name: str, which: Callable[[Sequence[str]], bool]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for child in _children_of(name):
        with contextlib.suppress(psutil.Error):
            if which(child.cmdline()):
                found += child.children()
    return sorted(found, key=lambda process: process.pid)


def _words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has just ended


def _pipes_of(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        held = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115
        return {each for each in held if each.startswith("pipe:")}
    return set()


def table(run: Run) -> list[tuple[int, tuple[Any, ...], float | None]]:
    """What a run came to, bit for bit: number, parameters and value of every trial."""
    columns = [c for c in run.trials.columns if c in run.spec.verb.space]  # type: ignore[union-attr]
    return [
        (int(row["number"]), tuple(row[c] for c in columns), row["value"])
        for _, row in run.trials.sort_values("number").iterrows()
    ]


def starts(run: Run) -> list[AttemptStarted]:
    return [event for event in run.events() if isinstance(event, AttemptStarted)]


def outcomes(run: Run, *kinds: str) -> list[AttemptFinished]:
    """Ends of attempts, of these outcomes only if any are given."""
    ends = [event for event in run.events() if isinstance(event, AttemptFinished)]
    return [end for end in ends if not kinds or end.outcome in kinds]


def assert_clean(run: Run, n_complete: int | None = None) -> list[Event]:
    """The ledger keeps its promises; every trial that ought to has completed exactly once."""
    events = run.events()
    assert audit(events) == []
    if n_complete is not None:
        completed = sorted(end.trial for end in outcomes(run, "complete"))
        assert completed == list(range(n_complete))
    return events


def fill(ballast: Path) -> None:
    """Leave no byte of the file system that ``ballast`` is on."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
