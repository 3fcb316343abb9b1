# A loop of one's own below Fabric, which shares out the loader and logs.
# result = loss_of_all
# ddp = -n 2
# tolerance = 0.05
# search = --grid lr=0.001,0.05 --metric train_loss --mode min
# needs = torch, lightning
# %%
import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

generator = torch.Generator().manual_seed(0)
x = torch.randn(256, 5, generator=generator)
y = (x**2).sum(1, keepdim=True) / 5

# %% train
lr = 0.05
fabric = Fabric()
fabric.launch()
fabric.seed_everything(0)
model = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(
    DataLoader(TensorDataset(x, y), batch_size=32 // fabric.world_size, shuffle=True)
)
for epoch in range(10):
    total = torch.tensor(0.0)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        fabric.backward(loss)
        optimizer.step()
        total += loss.detach()
    mean = fabric.all_reduce(total / len(loader), reduce_op="mean")
    fabric.log("train_loss", mean, step=epoch)
with torch.no_grad():
    loss_of_all = nn.functional.mse_loss(model(x), y).item()
fabric.print(f"loss {loss_of_all:.4f}")
