# Gradients accumulated by hand, with no_sync() until the last micro-batch.
# result = final_loss
# ddp = -n 2
# tolerance = 1e-5
# search = --grid lr=0.001,0.2 --metric final_loss --mode min
# needs = torch
# %%
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

generator = torch.Generator().manual_seed(0)
x = torch.randn(256, 8, generator=generator)
y = x @ torch.arange(8.0)[:, None] / 8
# %% train
lr = 0.2
accumulation_steps = 4
rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
torch.manual_seed(0)
net = nn.Linear(8, 1)
model = DDP(net) if world_size > 1 else net
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
for epoch in range(3):
    batches = list(zip(x.split(16), y.split(16), strict=True))
    for i, (inputs, targets) in enumerate(batches):
        inputs, targets = inputs[rank::world_size], targets[rank::world_size]
        is_last = (i + 1) % accumulation_steps == 0
        hold = model.no_sync() if world_size > 1 and not is_last else contextlib.nullcontext()
        with hold:
            loss = nn.functional.mse_loss(model(inputs), targets) / accumulation_steps
            loss.backward()
        if is_last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
with torch.no_grad():
    final_loss = nn.functional.mse_loss(net(x), y).item()
