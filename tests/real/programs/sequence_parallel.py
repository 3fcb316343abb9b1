# Tensor parallel with norms that are sharded along the sequence.
# result = losses
# plain = torchrun --nproc-per-node 2
# ddp = -n 2
# search = --ranks-per-trial 2 --grid lr=0.0001,0.01 --metric last_loss --mode min
# tolerance = 1e-5
# needs = torch
# %%
import os

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


# %% train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

lr = 0.01
mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(0)
model = Block()
plan = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Replicate()),
}
parallelize_module(model, mesh, plan)
parallelize_module(
    model,
    mesh,
    PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
)
optimizer = torch.optim.Adam(model.parameters(), lr=lr)
losses = []
for step in range(5):
    torch.manual_seed(step)
    x = torch.randn(2, 8, 16)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
last_loss = losses[-1]
