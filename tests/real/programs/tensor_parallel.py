# A block parallelised by columns and rows over a device mesh.
# result = losses
# plain = torchrun --nproc-per-node 2
# ddp = -n 2
# search = --ranks-per-trial 2 --grid lr=0.001,0.1 --metric last_loss --mode min
# tolerance = 1e-5
# needs = torch
# %% train
import os

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

lr = 0.1
mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tp",))


class FeedForward(nn.Module):
    def __init__(self, dim=16, hidden=32):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


torch.manual_seed(0)
model = parallelize_module(
    FeedForward(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
losses = []
for step in range(6):
    torch.manual_seed(step)
    x = torch.randn(8, 16)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
last_loss = losses[-1]
