# A DistributedSampler with set_epoch: all of the data in every epoch, in another order each.
# result = [*sums, n_seen, orders]
# search = --ranks-per-trial 2 --grid epochs=2,4 --metric n_seen
# ddp = -n 2 --bring sums,n_seen,orders
# needs = torch
# %%
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dataset = TensorDataset(torch.arange(40.0))
# %% train
world_size = dist.get_world_size() if dist.is_initialized() else 1
rank = dist.get_rank() if dist.is_initialized() else 0
sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True, seed=3)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
epochs = 3
sums, firsts, n_seen = [], set(), 0
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    values = torch.cat([batch for (batch,) in loader])
    firsts.add(tuple(values[:5].tolist()))
    total = torch.tensor([values.sum(), float(len(values))])
    if world_size > 1:
        dist.all_reduce(total)
    sums.append(total[0].item())
    n_seen += int(total[1])
orders = len(firsts)
