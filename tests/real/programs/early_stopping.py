# Early stopping by hand, agreed on by all ranks, with the best weights put back.
# result = stopped
# ddp = -n 2
# tolerance = 1e-4
# search = --grid lr=0.003,0.3 --metric loss_at_end --mode min
# needs = torch
# %%
import copy

import torch
import torch.distributed as dist
from torch import nn


class EarlyStopping:
    def __init__(self, patience=3, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad_epochs, self.state = float("inf"), 0, None

    def step(self, value, model):
        if value < self.best - self.min_delta:
            self.best, self.bad_epochs = value, 0
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


generator = torch.Generator().manual_seed(0)
x = torch.randn(128, 4, generator=generator)
y = x.sum(1, keepdim=True)
x_val, y_val = x[96:], y[96:]
# %% train
lr = 0.3
torch.manual_seed(0)
model = nn.Linear(4, 1)
rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
wrapped = nn.parallel.DistributedDataParallel(model) if world_size > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
stopping = EarlyStopping()
for epoch in range(60):
    optimizer.zero_grad()
    inputs, targets = x[:96][rank::world_size], y[:96][rank::world_size]
    nn.functional.mse_loss(wrapped(inputs), targets).backward()
    optimizer.step()
    with torch.no_grad():
        val_loss = nn.functional.mse_loss(model(x_val), y_val)
    stop = torch.tensor(int(stopping.step(val_loss.item(), model)))
    if world_size > 1:
        dist.broadcast(stop, src=0)
    if stop:
        print(f"early stop at epoch {epoch}")
        break
model.load_state_dict(stopping.state)
loss_at_end = stopping.best
stopped = [float(epoch), loss_at_end]
