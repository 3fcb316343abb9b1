# A classifier whose accuracy torchmetrics gathers from all ranks.
# result = accuracy
# ddp = -n 2
# tolerance = 0.05
# search = --grid lr=0.01,0.3 --metric accuracy
# needs = torch, torchmetrics
# %%
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

torch.manual_seed(0)
x = torch.randn(512, 8)
y = (x[:, :4].sum(1) > x[:, 4:].sum(1)).long()
dataset = TensorDataset(x, y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, inputs):
        return self.layers(inputs)


# %% train
lr = 0.3
distributed = dist.is_available() and dist.is_initialized()
torch.manual_seed(0)
net = Net()
if distributed:
    net = DistributedDataParallel(net)
sampler = DistributedSampler(dataset) if distributed else None
loader = DataLoader(dataset, batch_size=32, sampler=sampler, shuffle=sampler is None)
optimizer = torch.optim.SGD(net.parameters(), lr=lr)
metric = MulticlassAccuracy(num_classes=2, average="micro")
for epoch in range(5):
    if sampler is not None:
        sampler.set_epoch(epoch)
    metric.reset()
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        metric.update(outputs, targets)
    accuracy = metric.compute().item()
    print(f"epoch {epoch}: accuracy {accuracy:.3f}")
