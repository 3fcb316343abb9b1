# An exponential moving average of the weights, from torch.optim.swa_utils and by hand.
# result = distances
# ddp = -n 2
# tolerance = 1e-5
# search = --grid decay=0.5,0.99 --metric ema_loss --mode min
# needs = torch
# %%
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class EMA:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters(), strict=True):
            s.lerp_(p, 1 - self.decay)


generator = torch.Generator().manual_seed(0)
x = torch.randn(64, 4, generator=generator)
y = (x**2).sum(1, keepdim=True)
# %% train
decay = 0.9
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
wrapped = nn.parallel.DistributedDataParallel(model) if world_size > 1 else model
ema = EMA(model, decay)
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(20):
    optimizer.zero_grad()
    nn.functional.mse_loss(wrapped(x[rank::world_size]), y[rank::world_size]).backward()
    optimizer.step()
    ema.update(model)
    averaged.update_parameters(model)
with torch.no_grad():
    ema_loss = nn.functional.mse_loss(ema.shadow(x), y).item()
    swa_loss = nn.functional.mse_loss(averaged(x), y).item()
distances = [ema_loss, swa_loss]
