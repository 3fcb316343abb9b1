# A loop of one's own below accelerate, with gradient accumulation and accelerate's log.
# result = eval_loss
# ddp = -n 2
# tolerance = 0.001
# search = --grid lr=0.01,0.2 --metric eval_loss --mode min
# needs = torch, accelerate
# %%
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

generator = torch.Generator().manual_seed(0)
x = torch.randn(256, 10, generator=generator)
y = x @ torch.linspace(-1, 1, 10)[:, None]
train_set, eval_set = TensorDataset(x[:192], y[:192]), TensorDataset(x[192:], y[192:])

# %% train
lr = 0.1
set_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
per_device = 16 // accelerator.num_processes
train_loader = DataLoader(train_set, batch_size=per_device)
eval_loader = DataLoader(eval_set, batch_size=per_device)
model, optimizer, train_loader, eval_loader = accelerator.prepare(
    model, optimizer, train_loader, eval_loader
)
for epoch in range(4):
    model.train()
    for inputs, targets in train_loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    losses = []
    for inputs, targets in eval_loader:
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(inputs), targets, reduction="none")
        losses.append(accelerator.gather_for_metrics(loss))
    eval_loss = torch.cat(losses).mean().item()
    accelerator.print(f"epoch {epoch}: {eval_loss:.4f}")
    accelerator.log({"eval_loss": eval_loss}, step=epoch)
