"""Kills a notebook's kernel and its controller in every state of both; nothing may be left.

A round has a cluster of two workers, a kernel that is idle, waits for its run, computes, holds the
GIL or is stopped, and ranks that do something hard to end.  Kernel and controller are killed in
either order, and whatever lives on is counted.  ``python -m tests.soak.orphans --rounds 300
--seed 1`` ends with a table, and with a status other than 0 when something lived for too long.
"""

from __future__ import annotations

import argparse
import getpass
import itertools
import os
import random
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.leaks import Home, end_processes, leftovers_of, new_home, processes_of
from tests.live_kernel import LiveKernel
from tests.run_tools import controller_pid
from tests.soak.figures import nearly_all
from tests.until import until

__all__ = ["main"]

_CACHES = ("dask-scratch-space", f"torchinductor_{getpass.getuser()}")
"""Of Dask and torch: one each, whatever is killed."""
_POLL_S = 0.02
_N_WORKERS = 2
_START = f"""
import jupyter_ddl
jupyter_ddl.start_cluster(n_workers={_N_WORKERS}, name={{name!r}})
"""

_SENT_S = 0.5
"""A kernel that holds the GIL sends nothing: what it has printed has to be on its way before."""
_HOLDS_GIL = f"""
import ctypes, time
print("under", "way", flush=True)
time.sleep({_SENT_S})
ctypes.PyDLL(None).sleep(600)
"""
_KERNELS = {
    "idle": "",
    "waits": "print('under', 'way', flush=True); run.wait()",
    "busy": "print('under', 'way', flush=True)\nwhile True: pass",
    "gil": _HOLDS_GIL,
    "stopped": "",
}
"""What the kernel does at its end."""

_MARK = """
import os, pathlib, signal, subprocess, time
def mark():
    pathlib.Path(marks, str(os.getpid())).touch()
"""
_ITEM = """
class Slow:
    def __len__(self):
        return 2
    def __getitem__(self, number):
        mark()
        time.sleep(600)
if item == "gil":
    import ctypes
    mark()
    ctypes.PyDLL(None).sleep(600)
elif item == "stopped":
    mark()
    os.kill(os.getpid(), signal.SIGSTOP)
elif item == "child":
    child = subprocess.Popen(["sleep", "600"])
    mark()
    child.wait()
elif item == "daemon":
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        mark()
        os.execvp("sleep", ["sleep", "600"])
    time.sleep(600)
elif item == "loader":
    import torch
    next(iter(torch.utils.data.DataLoader(Slow(), num_workers=1)))
"""
_GROUP = """
import torch
from jupyter_ddl import rank
mark()
if rank() == 0:
    torch.distributed.barrier()
time.sleep(600)
"""
_ITEMS = ("gil", "stopped", "child", "daemon", "loader")
_RANKS = ("none", *_ITEMS, "group")
"""What they do at their end: two of a map do the same, a group's stand in a collective."""


class _Round(NamedTuple):
    kernel: str
    ranks: str
    kernel_first: bool
    gap_s: float


class Soak:
    """Rounds in one home, of which each begins with no process."""

    def __init__(self, home: Home, seed: int, longest_s: float) -> None:
        self._home = home
        self._longest_s = longest_s
        self._chance = random.Random(seed)
        self.took_s: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.broken: list[str] = []

    def rounds(self, n_rounds: int) -> list[_Round]:
        """Every pair of states about equally often, in random order."""
        pairs = list(itertools.product(_KERNELS, _RANKS))
        chosen = [pairs[number % len(pairs)] for number in range(n_rounds)]
        self._chance.shuffle(chosen)
        # One that waits would start another controller for its run, as it should.
        return [
            _Round(
                *pair,
                pair[0] == "waits" or self._chance.random() < 0.5,
                self._chance.choice((0.0, 0.3, 1.0)),
            )
            for pair in chosen
        ]

    def once(self, number: int, each: _Round) -> None:
        kernel = LiveKernel(self._home)
        # Of its own name: one of the same would go on with the run of the round before.
        name = f"round-{number}"
        try:
            self._begin(kernel, name, each)
            victims = [kernel.pid, controller_pid(name)]
            first, second = victims if each.kernel_first else reversed(victims)
            os.kill(first, signal.SIGKILL)
            time.sleep(each.gap_s)
            os.kill(second, signal.SIGKILL)
            self._judge(number, each, time.monotonic())
        finally:
            kernel.close(stop_clusters=False)
            end_processes(self._home)

    def _begin(self, kernel: LiveKernel, name: str, each: _Round) -> None:
        """Bring kernel and ranks into their states."""
        marks = self._home.work / name
        marks.mkdir()
        kernel.run(_START.format(name=name)).check()
        submit = _submission(marks, each.ranks)
        if submit:
            kernel.run(submit).check()
            until(lambda: len(list(marks.iterdir())) >= _N_WORKERS, 60.0, f"ranks of {each}")
        code = _KERNELS[each.kernel]
        if code and (submit or "run." not in code):
            kernel.finish(kernel.start(code), until_text="under way")
        if each.kernel == "gil":
            time.sleep(2 * _SENT_S)
        if each.kernel == "stopped":
            os.kill(kernel.pid, signal.SIGSTOP)

    def _judge(self, number: int, each: _Round, killed_s: float) -> None:
        left = processes_of(self._home)
        while left and time.monotonic() < killed_s + self._longest_s:
            time.sleep(_POLL_S)
            left = processes_of(self._home)
        self.took_s[each.kernel, each.ranks].append(time.monotonic() - killed_s)
        for process in left:
            self.broken.append(
                f"round {number}, {each}: left after {self._longest_s:g} s: {process}"
            )
            print(self.broken[-1], flush=True)

    def table(self) -> str:
        """Rounds and the longest time of each pair of states, in Markdown."""
        lines = [f"| kernel | {' | '.join(_RANKS)} |", "|---|" + "---|" * len(_RANKS)]
        for kernel in _KERNELS:
            cells = (self.took_s[kernel, ranks] for ranks in _RANKS)
            texts = (f"{len(times)}: {max(times):.2f} s" if times else "0" for times in cells)
            lines.append(f"| {kernel} | {' | '.join(texts)} |")
        times = [each for pair in self.took_s.values() for each in pair]
        lines.append(f"\n{len(times)} rounds; 95 of 100 ended within {nearly_all(times):.2f} s")
        return "\n".join(lines)


def _submission(marks: Path, ranks: str) -> str:
    cell = f"marks = {str(marks)!r}\n{_MARK}"
    if ranks == "none":
        return ""
    if ranks == "group":
        return (
            f"run = jupyter_ddl.train({cell + _GROUP!r}, {_N_WORKERS}, namespace={{}}, wait=False)"
        )
    items = [ranks] * _N_WORKERS
    return f"run = jupyter_ddl.map({cell + _ITEM!r}, {items}, namespace={{}}, wait=False)"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.orphans", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--longest-s", type=float, default=5.0, metavar="S", help="of a process")
    options = parser.parse_args(arguments)
    with new_home() as home:
        temporary = home.root / "tmp"
        temporary.mkdir()
        os.environ.update({**home.variables(), "TMPDIR": str(temporary)})
        soak = Soak(home, options.seed, options.longest_s)
        try:
            for number, each in enumerate(soak.rounds(options.rounds)):
                soak.once(number, each)
            soak.broken += _left_on_disk(home, temporary)
        finally:
            end_processes(home)
    print("\n".join([soak.table(), *soak.broken]))
    return 1 if soak.broken else 0


def _left_on_disk(home: Home, temporary: Path) -> list[str]:
    """What is still there when another cluster has come and gone, as lines."""
    kernel = LiveKernel(home)
    kernel.run(_START.format(name="last")).check()
    kernel.close()
    found = [f"left behind: {line}" for line in leftovers_of(home)]
    kept = {path for path in temporary.iterdir() if path.name not in _CACHES}
    return found + [f"left behind: {path}" for path in kept]


if __name__ == "__main__":
    sys.exit(main())
