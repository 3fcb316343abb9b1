"""Trains by each strategy many times in a row; in half of the runs a random rank is killed.

In one of five of these it is killed with its Dask worker.  By ways that are called joining, the
cluster grows while it trains.

What comes out is compared with one process's.  ``python -m tests.soak.strategies --runs 500
--seed 1`` ends with a table, and with a status other than 0 when a run was stuck or wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import psutil

from jupyter_ddl.protocol.events import Notice, Reported
from tests.leaks import end_processes, leftovers_of, new_home
from tests.run_tools import worker_of

if TYPE_CHECKING:
    from jupyter_ddl.client.clusters import Cluster
    from jupyter_ddl.client.run import Run

__all__ = ["main"]

_PATIENCE_S = 300.0
_LONGEST_S = 0.8
"""After so long a rank is killed at the latest: about when a cell on a quiet machine is done."""
_LONG = 60
"""Epochs of a cell that is still there when a worker has been started."""


class _Way(NamedTuple):
    n_ranks: int
    options: dict[str, Any]
    exact: Literal["always", "unharmed", "never"] = "always"
    """When it trains what one process does: a group that goes on without a rank does not."""
    joins: bool = False
    """Whether it begins with one rank less than it has in the end."""


def _piped(schedule: str) -> _Way:
    return _Way(2, {"strategy": "pipeline", "microbatches": 2, "schedule": schedule})


_WAYS = {
    "ddp": _Way(2, {"strategy": "ddp"}),
    "fsdp": _Way(2, {"strategy": "fsdp"}),
    "hsdp": _Way(4, {"strategy": "fsdp", "mesh": "dp_replicate=2,dp_shard=2"}),
    "tp": _Way(2, {"strategy": "fsdp", "mesh": "tp=2", "tp_plan": "plan"}),
    "dp-tp": _Way(4, {"strategy": "fsdp", "mesh": "dp=2,tp=2", "tp_plan": "plan"}),
    "dp": _Way(1, {"strategy": "dp"}),
    "local-sgd": _Way(2, {"strategy": "local-sgd", "sync_every": 1}, exact="unharmed"),
    "diloco": _Way(
        2,
        {"strategy": "diloco", "sync_every": 1, "outer_lr": 1.0, "outer_momentum": 0.0},
        exact="unharmed",
    ),
    "ps-sync": _Way(3, {"strategy": "ps-sync"}, exact="unharmed"),
    "ps-async": _Way(3, {"strategy": "ps-async"}, exact="never"),
    "two-servers": _Way(4, {"strategy": "ps-async", "servers": 2}, exact="never"),
    "joining ps-async": _Way(4, {"strategy": "ps-async", "min_ranks": 3}, "never", joins=True),
    "joining diloco": _Way(
        3, {"strategy": "diloco", "sync_every": 1, "min_ranks": 2}, "never", joins=True
    ),
    "pipeline": _piped("1f1b"),
    "gpipe": _piped("gpipe"),
    "interleaved": _piped("interleaved"),
    "zerobubble": _piped("zerobubble"),
    "dp-pp": _Way(4, {"strategy": "pipeline", "microbatches": 2, "mesh": "dp=2,pp=2"}),
}

_CELL = """
import os, threading, time
import torch
from jupyter_ddl import checkpoint, prepare, prepare_step, report, resume

def kill_me():
    time.sleep(after_s)
    try:
        file = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(file, str(os.getpid()).encode())
    if not kills_worker:
        os.kill(os.getpid(), 9)

if int(os.environ.get("RANK", "0")) == victim:
    threading.Thread(target=kill_me, daemon=True).start()
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(),
    torch.nn.Linear(8, 2),
).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)

def loss_fn(output, target):
    time.sleep(pause_s)
    return torch.nn.functional.mse_loss(output, target)

step = prepare_step(model, loss_fn, optimizer, accumulate=2)
generator = torch.Generator().manual_seed(1)
x_all, y_all = (torch.randn(30, n, generator=generator, dtype=torch.float64) for n in (4, 2))
data = torch.utils.data.TensorDataset(x_all, y_all)
loader = prepare(torch.utils.data.DataLoader(data, batch_size=8))
first = 0
if saved := resume():
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"] + 1
for epoch in range(first, n_epochs):
    for x, y in loader:
        step(x, y)
    report(step=epoch)
    checkpoint(step=epoch, model=model, optimizer=optimizer)
"""


class Soak:
    """Runs on one cluster in a home of its own."""

    def __init__(self, seed: int, folder: Path, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._folder = folder
        self._n_runs = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.broken: list[str] = []
        names = self._names(victim=None, pause_s=0.0)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(_CELL, names)
        self._expected: Any = names["model"].state_dict()
        self._data = names["x_all"], names["y_all"]
        self._most = 1.5 * self._loss_of(names["model"])

    def _names(self, **given: Any) -> dict[str, Any]:
        plan = {"0": "colwise", "2": "rowwise"}
        after_s = self._chance.uniform(0.0, _LONGEST_S)
        mark = str(self._folder / f"killed-{self._n_runs}")
        kills_worker = self._chance.random() < 0.2
        names = {"after_s": after_s, "mark": mark, "plan": plan, "pause_s": 0.01, "n_epochs": 4}
        return {**names, "kills_worker": kills_worker, **given}

    def once(self, name: str, n_repeats: int) -> None:
        """One run, with a kill or without."""
        from jupyter_ddl import train
        from jupyter_ddl.errors import JupyterDDLError

        way = _WAYS[name]
        victim = self._chance.randrange(way.n_ranks) if n_repeats % 2 else None
        self._n_runs += 1
        names = self._names(victim=victim)
        if way.joins:
            names["n_epochs"] = _LONG
            self._cluster.scale(way.n_ranks - 1)
        run = train(_CELL, way.n_ranks, namespace=names, bring=["model"], wait=False, **way.options)
        try:
            self._disturb(run, way, names)
            run.wait(_PATIENCE_S)
            is_harmed = Path(names["mark"]).exists()
            is_exact = way.exact == "always" or (way.exact == "unharmed" and not is_harmed)
            what = self._wrong(run, is_exact)
        except TimeoutError:
            what = "stuck"
            run.cancel()
        except JupyterDDLError as error:
            what = f"failed: {error}"
        if Path(names["mark"]).exists():
            self.counts[name, "killed"] += 1
            self.counts[name, "workers"] += names["kills_worker"]
        events = run.events()
        self.counts[name, "joined"] += sum(
            isinstance(event, Notice) and event.text.endswith("joins the others")
            for event in events
        )
        self.counts[name, "runs"] += 1
        if what:
            self.counts[name, "stuck" if what == "stuck" else "wrong"] += 1
            killed = "nobody" if victim is None else f"rank {victim} after {names['after_s']:.3f} s"
            self.broken.append(f"{name}, run {run.id}, killed: {killed}: {what}")
            print(self.broken[-1], flush=True)

    def _disturb(self, run: Run, way: _Way, names: dict[str, Any]) -> None:
        """What is not done by the cell itself: more slots, and the end of a worker."""
        deadline_s = time.monotonic() + _PATIENCE_S
        mark = Path(names["mark"])
        is_small, is_to_die = way.joins, names["victim"] is not None and names["kills_worker"]
        while (is_small or is_to_die) and run.state not in ("complete", "failed"):
            if time.monotonic() > deadline_s:
                raise TimeoutError
            time.sleep(0.02)
            if is_small and any(isinstance(event, Reported) for event in run.events()):
                time.sleep(self._chance.random())
                self._cluster.scale(way.n_ranks)
                is_small = False
            if is_to_die and mark.exists() and mark.read_text():
                is_to_die = False
                with contextlib.suppress(psutil.NoSuchProcess):  # its cell was faster
                    worker_of(int(mark.read_text())).kill()

    def _wrong(self, run: Run, is_exact: bool) -> str:
        model = run.value("model")
        if not is_exact:
            loss = self._loss_of(model)
            return "" if loss < self._most else f"loss {loss:.3g}; expected below {self._most:.3g}"
        found = model.state_dict()
        far = max(
            float((found[name] - expected).abs().max()) for name, expected in self._expected.items()
        )
        return "" if far <= 1e-9 else f"parameters differ by {far:.3g} from one process's"

    def _loss_of(self, model: Any) -> float:
        x, y = self._data
        return float((model(x) - y).detach().square().mean())

    def table(self) -> str:
        """The figures, in Markdown."""
        columns = ("runs", "killed", "workers", "joined", "stuck", "wrong")
        lines = [f"| strategy | {' | '.join(columns)} |", "|---" * 7 + "|"]
        for name in _WAYS:
            if self.counts[name, "runs"]:
                figures = (str(self.counts[name, column]) for column in columns)
                lines.append(f"| {name} | {' | '.join(figures)} |")
        return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.strategies", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, metavar="N", help="of each strategy")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin none afterwards")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--only", action="append", choices=tuple(_WAYS), metavar="NAME")
    options = parser.parse_args(arguments)
    over_s = time.monotonic() + 60.0 * options.minutes
    with new_home() as home:
        os.environ.update(home.variables())
        os.chdir(home.work)
        try:
            soak = _soaked(options, home.work, over_s)
        finally:
            end_processes(home)
        soak.broken += [f"left behind: {line}" for line in leftovers_of(home)]
    print("\n".join([soak.table(), *soak.broken]))
    return 1 if soak.broken else 0


def _soaked(options: argparse.Namespace, folder: Path, over_s: float) -> Soak:
    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.session import session

    chosen = options.only or _WAYS
    n_workers = max(_WAYS[name].n_ranks for name in chosen)
    cluster = start_cluster(n_workers=n_workers)
    try:
        soak = Soak(options.seed, folder, cluster)
        for number in range(options.runs):
            for name in chosen:
                if time.monotonic() < over_s:
                    soak.once(name, number)
                    cluster.scale(n_workers)
    finally:
        cluster.stop()
        session().close()
    return soak


if __name__ == "__main__":
    sys.exit(main())
