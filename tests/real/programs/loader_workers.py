# A loader with two worker processes over a dataset class of the notebook.
# result = total
# ddp = -n 2
# search = --grid scale=1.0,2.0 --metric total
# needs = torch
# %%
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.tensor(float(i * i))


def collate(batch):
    return torch.stack(batch)


def seed_worker(worker_id):
    torch.manual_seed(worker_id)


# %% train
scale = 1.0
dataset = Squares()
sampler = DistributedSampler(dataset) if dist.is_initialized() else None
loader = DataLoader(
    dataset,
    batch_size=8,
    sampler=sampler,
    num_workers=2,
    collate_fn=collate,
    worker_init_fn=seed_worker,
    persistent_workers=True,
)
total_tensor = torch.tensor(0.0)
for epoch in range(2):
    for batch in loader:
        total_tensor += scale * batch.sum()
if dist.is_initialized():
    dist.all_reduce(total_tensor)
total = total_tensor.item()
