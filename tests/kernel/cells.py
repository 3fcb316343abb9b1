"""Cells that several tests run; all but the last without heavy libraries."""

QUICK = """from jupyter_ddl import choice, loguniform, report

lr = loguniform(1e-4, 1e-1, default=1e-2)
act = choice("relu", "tanh")
for epoch in range(3):
    report(step=epoch, val_acc=0.5 - abs(lr - 0.01) + epoch * 0.1)
print("done", lr)
model = {"w": lr}
"""

STEADY = """import time
from jupyter_ddl import report, uniform

x = uniform(0.0, 1.0)
for step in range(600):
    time.sleep(0.05)
    report(step=step, acc=x)
"""
"""Reports every 0.05 s for half a minute."""

SILENT = """import time
from jupyter_ddl import report, uniform

x = uniform(0.0, 1.0)
time.sleep(60)
report(step=0, acc=x)
"""
"""Reports once, after a minute."""

TRAIN = """import torch
import torch.distributed as dist
from jupyter_ddl import loguniform, rank, report, world_size

lr = loguniform(1e-4, 1e-1, default=1e-2)
mean = torch.tensor([float(rank() + 1)])
if dist.is_initialized():
    dist.all_reduce(mean)
mean /= world_size()
for step in range(3):
    report(step=step, val_acc=float(mean) * lr * (step + 1))
print("rank", rank(), "says", float(mean))
model = {"mean": mean, "from": rank()}
"""
"""Runs as it is, as ddp and as a search of ddp runs."""
