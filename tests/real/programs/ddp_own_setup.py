# A main() that sets up a group by itself at a port of its own, with a time-out and an URL.
# result = losses
# ddp = -n 2 --no-init
# tolerance = 1e-5
# search = --grid lr=0.0001,0.05 --metric last_loss --mode min
# needs = torch
# %%
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29611"
    dist.init_process_group(
        backend="gloo",
        init_method="env://",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )


def cleanup():
    dist.destroy_process_group()


# %% train
lr = 1e-2


def main(rank, world_size, lr):
    setup(rank, world_size)
    torch.manual_seed(42)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for step in range(10):
        x = torch.randn(32, 8, generator=generator)
        x = x[rank::world_size]
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss.detach()
        dist.reduce(shown, 0)
        losses.append(shown.item() / world_size)
    dist.barrier()
    cleanup()
    return losses


losses = main(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)), lr)
last_loss = losses[-1]
