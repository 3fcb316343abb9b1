"""What the ways to train in parallel cost beside each other: bytes, losses, steps, idle time.

Figures are ratios within one process's runs.  Where a figure is about who waits for whom, ranks
sleep in place of computing, as those that wait for GPUs do: it is then that of many cores on two.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from bench.harness import ROOT, Goal, Line, Probe, Row, is_quick, tell

_MODULE = "bench.rows.strategies"
_SERVERS, _PIPELINE, _SCALING, _STEP = (
    Probe(_MODULE, (part,)) for part in ("servers", "pipeline", "scaling", "step")
)
_DILOCO, _LOST = (Probe(_MODULE, (part,), 1800.0) for part in ("diloco", "lost"))
_GO_ON = {
    "diloco": {"sync_every": 50},
    "local-sgd": {"sync_every": 8},
    "ps-async": {},
    "ps-sync": {},
}
"""Strategies whose ranks go on without one that is lost."""

_WAIT = Goal(1, "lower")

ROW = Row(
    name="strategies",
    title="Strategies beside each other",
    better="higher",
    repeats=1,
    warmups=0,
    note=(
        "DiLoCo with --sync-every 50 --outer-lr 1 --outer-momentum 0.5 beside ddp on the model and "
        "text of notebook 08, two ranks, 3,000 steps of equal samples, the learning rate falling "
        "by a cosine; the paper's outer optimizer is the default, 0.7 and 0.9. Servers: two "
        "workers, one takes 80 ms for a gradient, the other one 20 "
        "(both sleep). Pipeline: layers that sleep for 6 ms forward and 12 ms backward, 1f1b, 8 "
        "micro-batches. run.scaling(): the error at 4 and 8 ranks of a fit to 1 and 2, which "
        "compute, on as many cores as there are. A step of prepare_step beside the same loop by "
        "hand under ddp, in blocks of ten, in turns, within one cell. A lost rank: one of three is "
        "killed 0.5 to 2 s after its first step, ten times; how much longer than usual any step of "
        "the first rank took until the end of the run, the rank's return included."
    ),
    lines=(
        Line("bytes of ddp / of DiLoCo", _DILOCO, "bytes_ratio", "×", Goal(40, "higher")),
        Line("DiLoCo's test loss above ddp's", _DILOCO, "loss_percent", "%", Goal(2, "lower")),
        Line("the same with the paper's outer optimizer", _DILOCO, "loss_percent_default", "%"),
        Line(
            "steps/s of ps-async / of ps-sync, one rank 4 × slower",
            _SERVERS,
            "servers_ratio",
            "×",
            Goal(1.7, "higher"),
        ),
        Line("idle beyond the ideal, 2 ranks", _PIPELINE, "idle_2", "points", Goal(8, "lower")),
        Line("idle beyond the ideal, 4 ranks", _PIPELINE, "idle_4", "points", Goal(8, "lower")),
        *(
            Line(
                f"scaling() of 1 and 2 at {n_ranks} ranks",
                _SCALING,
                f"error_percent_{n_ranks}",
                "%",
                Goal(15, "lower"),
            )
            for n_ranks in (4, 8)
        ),
        Line("steps/s of prepare_step / by hand", _STEP, "step_ratio", "×", Goal(0.99, "higher")),
        Line("the same, by hand without the mean loss", _STEP, "bare_ratio", "×"),
        *(
            Line(f"rank 0 waits for a lost rank, {way}", _LOST, f"wait_{way}", "s", _WAIT)
            for way in _GO_ON
        ),
    ),
)

_GPT = """
import math
model = make_gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
step = prepare_step(model, loss_of, optimizer)
def rate(n):
    return min(1.0, (n + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * n / N_STEPS))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
samples = TensorDataset(*drawn(32 * N_STEPS, seed=1))
for x, y in prepare(DataLoader(samples, batch_size=32)):
    step(x, y)
    schedule.step()
"""

_UNEVEN = """
import time
import torch
model = torch.nn.Linear(8, 1)
def loss_fn(output, target):
    time.sleep(0.08 if rank() else 0.02)
    return torch.nn.functional.mse_loss(output, target)
step = prepare_step(model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.01))
x, y = torch.ones(4, 8), torch.ones(4, 1)
step(x, y)
n_steps, began_s = 0, time.perf_counter()
while time.perf_counter() < began_s + LASTS_S:
    step(x, y)
    n_steps += 1
n_steps / (time.perf_counter() - began_s)
"""

_SLEEPING = """
import time
import torch
class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        time.sleep(0.006)
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        time.sleep(0.012)
        return gradient
class Layer(torch.nn.Linear):
    def forward(self, x):
        return Sleep.apply(super().forward(x))
model = torch.nn.Sequential(*(Layer(8, 8) for _ in range(world_size())))
step = prepare_step(
    model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.01)
)
x = torch.ones(64, 8)
for _ in range(16):
    step(x, x)
"""

_COMPUTING = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
    torch.nn.Linear(512, 10),
)
step = prepare_step(
    model, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.01)
)
data = torch.utils.data.TensorDataset(
    torch.randn(256 * N_STEPS, 256), torch.randint(0, 10, (256 * N_STEPS,))
)
for x, y in prepare(torch.utils.data.DataLoader(data, batch_size=256)):
    step(x, y)
"""

_BY_HAND = """
import itertools
import time
import torch
import torch.distributed as dist
loss_fn = torch.nn.functional.cross_entropy
def made():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    )
    return model, torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer = made()
step = prepare_step(model, loss_fn, optimizer)
def loop():
    model, optimizer = made()
    model = torch.nn.parallel.DistributedDataParallel(model)
    def bare(x, y):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return bare
bare, without_mean = loop(), loop()
def by_hand(x, y):
    total = without_mean(x, y).double()
    dist.all_reduce(total)  # a step returns the mean over all ranks
    return total / world_size()
x, y = torch.randn(128, 256), torch.randint(0, 10, (128,))
def block_s(each):
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(10):
        each(x, y)
    return time.perf_counter() - began_s
ratios = []
orders = list(itertools.permutations((step, by_hand, bare)))
for number in range(N_PAIRS + 2):
    times = {each: block_s(each) for each in orders[number % len(orders)]}
    ratios.append([times[each] / times[step] for each in (by_hand, bare)])
ratios[2:]
"""


_LOSING = """
import os, pathlib, threading, time
import torch
model = torch.nn.Linear(8, 1)
step = prepare_step(
    model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.01)
)
x, y = torch.ones(4, 8), torch.ones(4, 1)
was_lost = pathlib.Path(mark)
if rank() == 1 and not was_lost.exists():
    def die():
        time.sleep(AFTER_S)
        was_lost.touch()
        os.kill(os.getpid(), 9)
    threading.Thread(target=die, daemon=True).start()
gaps, began_s = [], time.perf_counter()
for number in range(N_STEPS):
    time.sleep(0.005)
    step(x, y)
    ended_s = time.perf_counter()
    if number > 5:
        gaps.append(ended_s - began_s)
    began_s = ended_s
max(gaps), sorted(gaps)[len(gaps) // 2]
"""


@contextlib.contextmanager
def _cluster(n_workers: int) -> Iterator[None]:
    import torch

    from jupyter_ddl.client.clusters import start_cluster

    torch.set_num_threads(1)
    cluster = start_cluster(n_workers=n_workers)
    try:
        yield
    finally:
        cluster.stop()


def _trained(cell: str, n_ranks: int, names: dict[str, Any] | None = None, **options: Any) -> Any:
    from jupyter_ddl import train

    run = train(cell, n_ranks, namespace=names or {}, backend="gloo", **options)
    if run.state != "complete":
        raise RuntimeError(f"run {run.id} is {run.state}: {run.errors}")
    return run


def _notebook() -> dict[str, Any]:
    """What notebook 08 trains, and on what."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = json.loads((ROOT / "notebooks" / "08_parallel_training.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["id"] in ("text", "model"):
            with contextlib.redirect_stdout(sys.stderr):
                exec("".join(cell["source"]), names)
    return names


def _diloco() -> None:
    names = _notebook()
    names["N_STEPS"] = 200 if is_quick() else 3000
    rare = {"strategy": "diloco", "sync_every": 50}
    near = {**rare, "outer_lr": 1.0, "outer_momentum": 0.5}
    with _cluster(2):
        ddp, diloco, nearer = (
            _trained(_GPT, 2, names, bring=["model"], **options) for options in ({}, rare, near)
        )
        losses = [names["test_loss"](run.value("model")) for run in (ddp, diloco, nearer)]
    tell(
        {
            "bytes_ratio": ddp.bytes_sent / nearer.bytes_sent,
            "loss_percent": 100 * (losses[2] / losses[0] - 1),
            "loss_percent_default": 100 * (losses[1] / losses[0] - 1),
        }
    )


def _servers() -> None:
    names = {"LASTS_S": 2.0 if is_quick() else 5.0}
    with _cluster(3):
        per_s = {
            way: sum(_trained(_UNEVEN, 3, names, strategy=way).values[:2])
            for way in ("ps-sync", "ps-async")
        }
    tell({"servers_ratio": per_s["ps-async"] / per_s["ps-sync"]})


def _pipeline() -> None:
    from jupyter_ddl.protocol.events import PipelineTimed

    found = {}
    with _cluster(4):
        for n_ranks in (2, 4):
            run = _trained(_SLEEPING, n_ranks, strategy="pipeline", microbatches=8)
            times = [each.times for each in run.events() if isinstance(each, PipelineTimed)][-1]
            found[f"idle_{n_ranks}"] = 100 * (times.idle_share - times.ideal_idle_share)
    tell(found)


def _scaling() -> None:
    names = {"N_STEPS": 60 if is_quick() else 250}
    with _cluster(8):
        one, two, *others = (_trained(_COMPUTING, n_ranks, names) for n_ranks in (1, 2, 4, 8))
        tables = {
            n_ranks: one.scaling(two, run) for n_ranks, run in zip((4, 8), others, strict=True)
        }
    found = {}
    for n_ranks, table in tables.items():  # each size's error is of a fit to the two others
        (error,) = table[(table.ranks == n_ranks) & (table.strategy == "ddp")]["error"]
        found[f"error_percent_{n_ranks}"] = 100 * abs(error)
    tell(found)


def _step() -> None:
    with _cluster(2):
        run = _trained(_BY_HAND, 2, {"N_PAIRS": 12 if is_quick() else 120})
    by_hand, bare = map(statistics.median, zip(*run.values[0], strict=True))
    tell({"step_ratio": by_hand, "bare_ratio": bare})


def _lost() -> None:
    chance = random.Random(1)
    waits = {}
    with _cluster(3), tempfile.TemporaryDirectory() as folder:
        for way, options in _GO_ON.items():
            waits[way] = []
            for number in range(2 if is_quick() else 10):
                names = {
                    "mark": f"{folder}/{way}-{number}",
                    "AFTER_S": chance.uniform(0.5, 2.0),
                    "N_STEPS": 600,
                }
                run = _trained(_LOSING, 3, names, strategy=way, max_restarts=0, **options)
                longest_s, usual_s = run.values[0]
                waits[way].append(longest_s - usual_s)
    tell({f"wait_{way}": max(waits_s) for way, waits_s in waits.items()})


_PARTS: dict[str, Callable[[], None]] = {
    "diloco": _diloco,
    "servers": _servers,
    "pipeline": _pipeline,
    "scaling": _scaling,
    "step": _step,
    "lost": _lost,
}

if __name__ == "__main__":
    _PARTS[sys.argv[1]]()
