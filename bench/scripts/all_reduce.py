"""The smallest rank group: meet, add one number, tell when that was done.

Runs under torchrun, and as a cell of ``%%distribute ddp``, where the group exists already.
"""

import time

import torch
import torch.distributed as dist

if not dist.is_initialized():
    dist.init_process_group("gloo")
number = torch.ones(1)
dist.all_reduce(number)
done_at_s = time.time()
print(f"DONE {done_at_s:.6f}", flush=True)
dist.barrier()
dist.destroy_process_group()
