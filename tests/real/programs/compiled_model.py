# A model behind torch.compile, trained by hand.
# result = loss_value
# ddp = -n 2
# tolerance = 1e-4
# search = --grid lr=0.001,0.1 --metric loss_value --mode min
# needs = torch
# %%
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
inputs, labels = torch.randn(64, 8), torch.randint(0, 3, (64,))
# %% train
lr = 0.1
torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=lr)


@torch.compile(backend="eager")
def train_step(x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss


for step in range(10):
    optimizer.zero_grad()
    loss = train_step(inputs, labels)
    optimizer.step()
loss_value = loss.item()
