"""Kills kernels, Jupyter servers, controllers, workers, zygotes and ranks in random order.

Two notebooks go on for the whole time: one with searches, one with trainings on two ranks, on one
cluster.  Who uses them does what people do: behind a killed kernel a new one attaches to the run,
a Jupyter server is started again and its panel connects, and controllers come back by whoever waits
for their runs.  ``python -m tests.soak --kills 1000 --seed 1`` ends with a table, and with a status
other than 0 when a promise broke.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import math
import os
import platform
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import AddressFamily
from typing import Any, TypeVar

import psutil

from jupyter_ddl.client.session import session
from jupyter_ddl.store.connection import read_connection
from tests.leaks import Home, end_processes, leftovers_of, new_home, processes_of
from tests.run_tools import workers, zygote_of, zygotes
from tests.soak.cpu import CpuUse
from tests.soak.figures import Kill, nearly_all, rows_of
from tests.soak.records import Record, Records, lost_steps
from tests.soak.stage import Notebook, Panel

__all__ = ["main"]

_CLUSTER = "soak"
_KINDS = ("kernel", "server", "controller", "worker", "zygote", "rank")
_EACH_S = 0.02
_PATIENCE_S = 300.0
_ORPHAN_S = 10.0
_GROWTH_BYTES = 5 << 20
_N_WORKERS = 4
_LINK = "Unix socket of a pair, or to a server"
_POOLED = {
    "controller": {
        "TCP ESTABLISHED to itself": _N_WORKERS,
        "TCP ESTABLISHED called": 2 * _N_WORKERS,
        "TCP ESTABLISHED calling": _N_WORKERS,
        "ledger.ddl": 2,
        "ledger.ddl.lock": 2,
    },
    "server": {"ledger.ddl": 16, _LINK: 1},
    "kernel": {"ledger.ddl": 1, _LINK: 1},
}
"""Descriptors that are no leak.  Each nanny opens one connection to its scheduler, both ends of it
in the controller, when its worker dies for the first time, and keeps it; a worker that has just
begun has called the scheduler once, and later twice; a scheduler keeps one to each worker that it
has passed a call on to; a controller holds the ledgers of the runs under way;
a server those of the last 16 runs that were looked at, and a kernel that of the run which its cell
follows, but for a moment between two.  Neither has a link while there is no controller."""
_LONG_LIFE = 6
"""Moments of rest that a life needs to be judged."""
_INTERVAL = {"search": 3, "ddp": 5}
"""Steps between two checkpoints."""

_SEARCH = """%%distribute search --metric score --trials {trials} --seed 5 --sampler tpe \
--max-parallel 2 --max-failures 100000
import time
from jupyter_ddl import checkpoint, report, resume, uniform
x = uniform(0.0, 1.0)
state = resume() or {{"step": -1, "total": 0.0}}
total = state["total"]
for step in range(state["step"] + 1, 12):
    with open(f"{notes}/search-{number}-{{x!r}}", "a") as file:
        file.write(f"{{step}}\\n")
    time.sleep(0.1)
    total += x / (step + 1)
    report(step=step, score=total)
    if step % 3 == 2:
        checkpoint(step=step, total=total)
"""

_TRAINING = """%%distribute ddp -n 2 --max-restarts 100000 --seed 5
import time
import torch
from jupyter_ddl import checkpoint, prepare, rank, report, resume
torch.manual_seed(1)
inputs = torch.randn(64, 8)
targets = inputs.sum(dim=1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
state = resume()
if state:
    model.load_state_dict(state["model"])
model = prepare(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(state["step"] + 1 if state else 0, {steps}):
    if rank() == 0:
        with open(f"{notes}/ddp-{number}", "a") as file:
            file.write(f"{{step}}\\n")
    mine = slice(int(rank()), None, 2)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine])
    loss.backward()
    optimizer.step()
    report(step=step, loss=loss.item())
    if step % 5 == 4:
        checkpoint(step=step, model=model.module.state_dict())
    time.sleep(0.05)
"""


_Value = TypeVar("_Value")


@dataclass
class _Life:
    """A process that ought not to grow, at its moments of rest."""

    kind: str
    open_files: list[Counter[str]] = field(default_factory=list)
    """What its descriptors are of, and how many."""
    rss: list[int] = field(default_factory=list)

    def take(self, pid: int) -> None:
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            self.open_files.append(_open_files(process))
            self.rss.append(process.memory_info().rss)

    @property
    def n_fds(self) -> list[int]:
        return [each.total() for each in self.open_files]

    @property
    def is_long(self) -> bool:
        return len(self.rss) >= _LONG_LIFE

    def grown(self) -> int:
        """Bytes that are never given back: its least, later and before.

        What is held depends on what is under way at the moment, and a process that has just begun
        is not through with its imports.
        """
        before, later = self._thirds(self.rss)
        return min(later) - min(before)

    def kept(self) -> Counter[str]:
        """Descriptors that are never given back, by what they are of, in the same way."""
        before, later = self._thirds(self.open_files)
        least = {name: min(each[name] for each in later) for name in later[-1]}
        return Counter(
            {
                name: more
                for name, n in least.items()
                if (more := n - min(each[name] for each in before)) > 0
            }
        )

    @staticmethod
    def _thirds(values: list[_Value]) -> tuple[list[_Value], list[_Value]]:
        """The second third, and the last one."""
        third = len(values) // 3
        return values[third:-third], values[-third:]


def _open_files(process: psutil.Process) -> Counter[str]:
    sockets = {each.fd: each for each in process.net_connections("all")}
    listening = {s.laddr for s in sockets.values() if s.status == psutil.CONN_LISTEN}
    names: Counter[str] = Counter()
    for each in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            name = each.readlink().name.partition(":[")[0]
            if (socket := sockets.get(int(each.name))) is not None:
                name = _socket_name(socket, listening)
            names[name] += 1
    return names


def _socket_name(socket: Any, listening: set[Any]) -> str:
    """Of TCP: its state, and who has called whom."""
    if socket.family == AddressFamily.AF_UNIX:
        return f"Unix socket {name}" if (name := Path(socket.laddr).name) else _LINK
    if not socket.raddr:
        return f"TCP {socket.status}"
    if socket.raddr in listening:
        return f"TCP {socket.status} to itself"
    return f"TCP {socket.status} {'called' if socket.laddr in listening else 'calling'}"


class Soak:
    """One soak in a home of its own."""

    def __init__(self, home: Home, options: argparse.Namespace) -> None:
        self._home = home
        self._options = options
        self._chance = random.Random(options.seed)
        self._notes = home.work / "notes"
        self._notes.mkdir()
        self._records = Records()
        self._unfinished: dict[str, list[str]] = {"search": [], "ddp": []}
        start = f"%cluster start local -n {_N_WORKERS} --name {_CLUSTER}"
        self._search, self._training = (
            Notebook(home, name, _CLUSTER, start, cell, partial(self._ids, verb))
            for name, cell, verb in (
                ("search", self._search_cell, "search"),
                ("training", self._training_cell, "ddp"),
            )
        )
        self._panel = Panel(home, lambda: [*self._ids("search"), *self._ids("ddp")])
        self.kills: list[Kill] = []
        self.broken: list[str] = []
        self._lives: dict[tuple[str, int], _Life] = {}

    def run(self) -> None:
        """Calm runs first, then the kills, then the ends of the runs under way."""
        self._search.start()
        self._wait(lambda: self._ids("search"), "the first search")
        self._training.start()
        self._panel.start()
        self._wait(
            lambda: {r.verb for r in self._records.runs.values() if r.is_over} >= {"search", "ddp"},
            "two calm runs",
        )
        over_s = time.monotonic() + 60.0 * self._options.minutes
        while (
            len(self.kills) < self._options.kills and time.monotonic() < over_s and not self.broken
        ):
            self._kill_some()
        self._end()
        self._judge()

    # -- kills -------------------------------------------------------------------------------

    def _kill_some(self) -> None:
        """One kill, or two in short order, and wait until all goes on."""
        kind = self._draw_kind()
        self._wait(lambda: self._victims(kind), f"a {kind} to kill")
        cpu = CpuUse(processes_of(self._home))
        some = self._kill(kind)
        while some and self._chance.random() < 0.2:
            self._pause(0.0, 2.0)
            # Nobody waits for a victim here: all is timed from the last kill.
            some += self._kill(self._draw_kind())
        if not some:
            return
        deadline = time.monotonic() + _PATIENCE_S
        last_s = some[-1].at_s
        left = list(some)
        while left:
            self._look()
            for kill in [k for k in left if self._is_survived(k, last_s)]:
                kill.took_s = time.time() - last_s
                left.remove(kill)
                if len(some) == 1:
                    kill.cpu_s = cpu.spent_s(processes_of(self._home))
            if self.broken:
                return
            if left and time.monotonic() > deadline:
                kinds = ", ".join(kill.kind for kill in some)
                self.broken.append(
                    f"kill {len(self.kills)} ({kinds}): no progress within {_PATIENCE_S:.0f} s: "
                    f"{[(k.kind, k.works) for k in left]}"
                )
                return
        self._at_rest()
        self._say(some)
        self._pause(0.0, 2.0)

    def _draw_kind(self) -> str:
        return str(self._chance.choice(self._options.kinds))

    def _kill(self, kind: str) -> list[Kill]:
        """One of a kind, if there is one now."""
        self._look()
        found = self._victims(kind)
        if not found:
            return []
        pid, kill = self._chance.choice(found)
        lost = {pid}
        with contextlib.suppress(psutil.Error):
            victim = psutil.Process(pid)
            for each in (victim, *(zygote_of(victim, _CLUSTER) if kind == "worker" else ())):
                lost |= {each.pid, *(child.pid for child in each.children(recursive=True))}
        works = self._records.worked()
        with contextlib.suppress(ProcessLookupError):
            kill()
        made = Kill(kind, pid, time.time(), works, self._records.unfinished(), frozenset(lost))
        self.kills.append(made)
        return [made]

    def _victims(self, kind: str) -> list[tuple[int, Callable[[], object]]]:
        if kind == "kernel":
            each: Iterable[Notebook | Panel] = (self._search, self._training)
            return [(user.pid, user.kill) for user in each if user.pid is not None]
        if kind == "server":
            return [(self._panel.pid, self._panel.kill)] if self._panel.pid is not None else []
        pids = self._below(kind)
        return [(pid, lambda pid=pid: os.kill(pid, signal.SIGKILL)) for pid in pids]

    def _below(self, kind: str) -> list[int]:
        if kind == "controller":
            info = read_connection(_CLUSTER)
            return [] if info is None else [info.process.pid]
        if kind == "worker":
            return [process.pid for process in workers(_CLUSTER)]
        found = [*zygotes(_CLUSTER), *_children(workers(_CLUSTER))]
        return sorted(process.pid for process in (_children(found) if kind == "rank" else found))

    def _is_survived(self, kill: Kill, last_s: float) -> bool:
        if kill.kind == "kernel":
            return all(user.drawn_at_s > last_s for user in (self._search, self._training))
        if kill.kind == "server":
            return self._panel.seen_at_s > last_s
        if not all(run.is_over or run.reported_at_s > last_s for run in kill.runs):
            return False
        return all(self._records.goes_on(work, last_s, kill.lost) for work in kill.works)

    # -- looking ------------------------------------------------------------------------------

    def _look(self) -> None:
        self._records.poll()
        for verb in self._unfinished:
            self._unfinished[verb] = [r.run_id for r in self._records.unfinished(verb)]
        for user in (self._search, self._training, self._panel):
            if user.complaints:
                self.broken += user.complaints
                user.complaints.clear()
        time.sleep(_EACH_S)

    def _ids(self, verb: str) -> list[str]:
        return self._unfinished[verb]

    def _wait(self, predicate: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not predicate():
            self._look()
            if self.broken or time.monotonic() > deadline:
                raise BrokenPromiseError(self.broken or [f"waited in vain for {what}"])

    def _pause(self, low_s: float, high_s: float) -> None:
        until_s = time.monotonic() + self._chance.uniform(low_s, high_s)
        while time.monotonic() < until_s:
            self._look()

    def _at_rest(self) -> None:
        """What is open and held now, and nobody is there who belongs to no one."""
        roots = {"controller": self._below("controller")}
        users = {"kernel": (self._search, self._training), "server": (self._panel,)}
        for kind, each in users.items():
            roots[kind] = [user.pid for user in each if user.pid is not None]
        for kind, pids in roots.items():
            for pid in pids:
                self._lives.setdefault((kind, pid), _Life(kind)).take(pid)
        deadline = time.monotonic() + _ORPHAN_S
        while orphans := self._orphans():
            if time.monotonic() > deadline:
                self.broken.append(f"kill {len(self.kills)}: orphans: {orphans}")
                return
            self._look()

    def _orphans(self) -> list[str]:
        """Processes of this soak that hang below no live controller, kernel, server or this."""
        found = {process.pid: process for process in processes_of(self._home)}
        return [
            f"{process.pid} {_line(process)}" for process in found.values() if _is_orphan(process)
        ]

    # -- the end ------------------------------------------------------------------------------

    def _end(self) -> None:
        for user in (self._search, self._training):
            user.close()
        with contextlib.suppress(BrokenPromiseError):
            self._wait(
                lambda: self._search.has_ended.is_set() and self._training.has_ended.is_set(),
                "the ends of the last runs",
            )
        self._panel.close()
        self._panel.join(30)
        self._look()
        if self.broken:
            return  # who waits would start again what is stopped here
        if read_connection(_CLUSTER) is not None:
            from jupyter_ddl.client.clusters import Cluster

            Cluster(_CLUSTER).stop()
        session().close()
        self.broken += [f"left behind: {line}" for line in leftovers_of(self._home)]

    def _judge(self) -> None:
        first: dict[str, Record] = {}
        for run in self._records.runs.values():
            self.broken += run.broken()
            if run.is_over and (what := run.differs_from(first.setdefault(run.verb, run))):
                self.broken.append(f"run {run.run_id} ({run.verb}): {what}")
        for path in sorted(self._notes.iterdir()):
            most = max(lost_steps(path), default=0)
            if most > _INTERVAL[path.name.split("-")[0]]:
                self.broken.append(f"{path.name}: {most} steps were made twice")
        for (kind, pid), life in self._lives.items():
            if not life.is_long:
                continue
            n_bytes = life.grown()
            if n_bytes > _GROWTH_BYTES:
                self.broken.append(f"{kind} {pid} grew by {n_bytes / 2**20:.1f} MB: {life.rss}")
            leaked = life.kept() - Counter(_POOLED.get(kind, {}))
            if leaked:
                self.broken.append(
                    f"{kind} {pid} keeps descriptors, of its {life.n_fds}, beyond what is pooled: "
                    f"{_counted(leaked)}"
                )
        took_s = nearly_all([kill.took_s for kill in self.kills])
        if took_s > self._options.p95_s:
            self.broken.append(f"95 % of kills were survived within {took_s:.1f} s")

    # -- telling -------------------------------------------------------------------------------

    def _say(self, some: list[Kill]) -> None:
        told = ", ".join(f"{kill.kind} {kill.took_s:.2f} s" for kill in some)
        print(f"{time.strftime('%H:%M:%S')} {len(self.kills)}: {told}", flush=True)

    def table(self) -> str:
        """The figures, in Markdown."""
        return "\n".join([*rows_of(self.kills, _KINDS), "", *self._facts()])

    def _facts(self) -> list[str]:
        runs = self._records.runs.values()
        lost = {
            verb: max((n for p in self._notes.glob(f"{verb}-*") for n in lost_steps(p)), default=0)
            for verb in _INTERVAL
        }
        told = [
            f"- {sum(r.verb == 'search' for r in runs)} searches with "
            f"{sum(len(r.ended) for r in runs if r.verb == 'search')} trials, "
            f"{sum(r.verb == 'ddp' for r in runs)} trainings",
            f"- {self._search.n_repeated + self._training.n_repeated} cells were executed again, "
            f"since the controller was killed while they were submitted",
            f"- attempts: {sum(r.n_ended_attempts('evicted') for r in runs)} evicted, "
            f"{sum(r.n_ended_attempts('failed') for r in runs)} failed",
            f"- steps made again, at most: {lost['search']} of a search's trial (checkpoints every "
            f"3), {lost['ddp']} of a training (every 5)",
        ]
        if self._panel.lost:
            reasons = "; ".join(sorted(set(self._panel.lost)))
            told.append(f"- the panel connected anew {len(self._panel.lost)} times: {reasons}")
        for kind in ("controller", "server", "kernel"):
            lives = [life for life in self._lives.values() if life.kind == kind and life.is_long]
            if lives:
                longest = max(len(life.rss) for life in lives)
                kept = Counter[str]()
                for life in lives:
                    kept |= life.kept()
                told.append(
                    f"- {kind}: {len(lives)} that saw {_LONG_LIFE} kills or more ({longest} at "
                    f"most), grew by at most {max(life.grown() for life in lives) / 2**20:.1f} MB; "
                    f"kept at most: {_counted(kept) or 'nothing'}"
                )
        return told

    def _search_cell(self, number: int) -> str:
        return _SEARCH.format(number=number, notes=self._notes, trials=self._options.trials)

    def _training_cell(self, number: int) -> str:
        return _TRAINING.format(number=number, notes=self._notes, steps=self._options.steps)


class BrokenPromiseError(Exception):
    """Something that was waited for did not come."""


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{n} x {name}" for name, n in names.items())


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:160]
    except psutil.Error:
        return ""


def _children(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found += process.children()
    return [each for each in found if "resource_tracker" not in _line(each)]


def _is_orphan(process: psutil.Process) -> bool:
    """Whether init has inherited it, or one that it hangs below, and it is no controller."""
    own = os.getpid()
    with contextlib.suppress(psutil.Error):
        line = {each.pid: _line(each) for each in (process, *process.parents())}
        if own in line:
            return False
        if any("jupyter_ddl.controller" in text for text in line.values()):
            info = read_connection(_CLUSTER)
            return info is None or info.process.pid not in line
        return process.is_running()
    return False


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, metavar="N")
    parser.add_argument("--minutes", type=float, default=math.inf, help="kill nobody afterwards")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument(
        "--p95-s", type=float, default=10.0, metavar="S", help="inf: any time will do"
    )
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=list(_KINDS))
    parser.add_argument("--trials", type=int, default=30, help="of a search")
    parser.add_argument("--steps", type=int, default=200, help="of a training")
    parser.add_argument("--keep", type=Path, help="copy runs and logs there when a promise broke")
    options = parser.parse_args(arguments)
    faulthandler.register(signal.SIGUSR1)
    began_s = time.monotonic()
    with new_home() as home:
        os.environ.update(home.variables())
        soak = Soak(home, options)
        try:
            soak.run()
        except BrokenPromiseError as error:
            soak.broken += [str(error)]
        finally:
            end_processes(home)
        print(
            f"\n{len(soak.kills)} kills in {(time.monotonic() - began_s) / 60:.0f} min, seed "
            f"{options.seed}, load {os.getloadavg()[2]:.0f}, nice {os.nice(0)}; "
            f"{platform.platform()}, {os.cpu_count()} CPUs\n\n{soak.table()}\n"
        )
        for line in soak.broken:
            print(f"BROKEN: {line}")
        if soak.broken and options.keep:
            import shutil

            shutil.copytree(
                home.root,
                options.keep,
                dirs_exist_ok=True,
                ignore_dangling_symlinks=True,
                ignore=shutil.ignore_patterns("*.sock", "*-ipc-*"),
            )
    return 1 if soak.broken else 0


if __name__ == "__main__":
    sys.exit(main())
