"""The training of ``train_steps.py``, which reports and prints 50 times a second if it is to.

A cell of ``%%distribute ddp``; on a cluster without telemetry it does not report, and prints to
nowhere: what formatting and writing a line costs is the training's own.
"""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from jupyter_ddl import report

SPEAKS = os.environ.get("JUPYTER_DDL_TELEMETRY_INTERVAL") != "0"
N_STEPS = 500
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(256, 256), torch.randint(0, 10, (256,))
nowhere = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
n_reports = 0
for step in range(20 + N_STEPS):
    if step == 20:  # the first ones are not steady
        dist.barrier()
        began, cpu_began = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    if step >= 20 and time.perf_counter() - began >= n_reports / 50:
        n_reports += 1
        value = float(loss)
        if SPEAKS:
            report(step=n_reports, loss=value)
        print(f"step {step}: loss {value:.4f}", file=None if SPEAKS else nowhere, flush=True)
cpu_ms = 1e3 * (time.process_time() - cpu_began) / N_STEPS
dist.barrier()
took_s = time.perf_counter() - began
print(f"CPU_MS_PER_STEP {cpu_ms:.6f}", flush=True)
print(f"STEPS_PER_S {N_STEPS / took_s:.4f}", flush=True)
print(f"REPORTS_PER_S {n_reports / took_s:.4f}", flush=True)
