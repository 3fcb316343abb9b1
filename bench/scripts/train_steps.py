"""Plain torch: a network under DistributedDataParallel; tells its steps per second.

Runs unchanged under torchrun and as a cell of ``%%distribute ddp``.
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if not dist.is_initialized():
    dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(256, 256), torch.randint(0, 10, (256,))
N_STEPS = 250
for step in range(20 + N_STEPS):
    if step == 20:  # the first ones are not steady
        dist.barrier()
        began, cpu_began = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
cpu_ms = 1e3 * (time.process_time() - cpu_began) / N_STEPS
dist.barrier()
print(f"CPU_MS_PER_STEP {cpu_ms:.6f}", flush=True)
print(f"STEPS_PER_S {N_STEPS / (time.perf_counter() - began):.4f}", flush=True)
dist.destroy_process_group()
