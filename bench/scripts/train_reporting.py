"""The training of ``train_steps.py`` with smaller batches, which may report 50 times a second.

A cell of ``%%distribute ddp``; on a cluster without telemetry it does not report, and prints to
nowhere as often: what formatting and writing a line costs is the training's own.

Beside its speed it tells whose CPU time went into that, in milliseconds a second: of this rank's
main thread within ``report`` and ``print``, of jupyter_ddl's threads in this rank, and (rank 0) of
all workers and of the controller.
"""

import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from jupyter_ddl import report

SPEAKS = os.environ.get("JUPYTER_DDL_TELEMETRY_INTERVAL") != "0"
WARM_UP_S = 8.0
N_STEPS = 800
proc = Path("/proc")


def cpu_ms(*tasks):
    """CPU time of threads in milliseconds, exact to the nanosecond as ``stat`` is not."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def parent(pid):
    return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def with_children(pid):
    tasks = list((proc / str(pid) / "task").iterdir())
    return tasks, [int(p) for task in tasks for p in (task / "children").read_text().split()]


def spent_ms():
    """CPU time so far: in what is said, in our threads here, in workers, in the controller."""
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("ddl-")]
    here = [proc / "self/task" / str(thread.native_id) for thread in ours]
    if dist.get_rank():
        return [1e3 * saying_s, cpu_ms(*here), 0.0, 0.0]
    controller, below = with_children(parent(parent(os.getppid())))
    workers = 0.0
    for worker in below:
        tasks, zygotes = with_children(worker)
        for zygote in zygotes:
            tasks += with_children(zygote)[0]
        workers += cpu_ms(*tasks)
    return [1e3 * saying_s, cpu_ms(*here), workers, cpu_ms(*controller)]


torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
nowhere = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
n_reports, saying_s, steady = 0, 0.0, None
is_warm = torch.zeros(1)
began = time.perf_counter()
step = 0
while steady is None or step < steady + N_STEPS:
    # Ranks agree on when they are steady: all count the same steps.
    if steady is None and step % 20 == 0:
        is_warm[0] = float(time.perf_counter() - began > WARM_UP_S)
        dist.all_reduce(is_warm)
        if is_warm[0]:
            steady, n_reports, began = step, 0, time.perf_counter()
            before = spent_ms()
    step += 1
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    if time.perf_counter() - began >= n_reports / 50:
        n_reports += 1
        value = float(loss)
        thread_began = time.thread_time()
        if SPEAKS:
            report(step=step, loss=value)
        print(f"step {step}: loss {value:.4f}", file=None if SPEAKS else nowhere, flush=True)
        saying_s += time.thread_time() - thread_began
took_s = time.perf_counter() - began
spent = [(now - old) / took_s for now, old in zip(spent_ms(), before, strict=True)]
dist.barrier()
print(f"STEPS_PER_S {N_STEPS / took_s:.4f}", flush=True)
print(f"REPORTS_PER_S {n_reports / took_s:.4f}", flush=True)
for name, ms_per_s in zip(("SAYING", "THREADS", "WORKERS", "CONTROLLER"), spent, strict=True):
    print(f"{name}_MS_PER_S {ms_per_s:.4f}", flush=True)
