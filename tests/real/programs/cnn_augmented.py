# A CNN on images with augmentation, a schedule of learning rates and AMP in bfloat16.
# result = accuracy
# ddp = -n 2
# tolerance = 0.15
# search = --grid lr=0.0001,0.02 --metric accuracy
# needs = torch
# %%
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Stripes(Dataset):
    def __init__(self, n, train):
        self.n, self.train = n, train

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i + (0 if self.train else 10_000))
        image, label = torch.randn(1, 12, 12, generator=g) * 0.4, i % 2
        lines = torch.arange(12) % 4 < 2
        image += (lines[None, :, None] if label else lines[None, None, :]).float()
        if self.train and torch.rand(1, generator=g) < 0.5:
            image = image.flip(-1)
        return image, label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 25, 2)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.bn(self.conv1(x))), 2).flatten(1))


# %% train
lr = 0.02
torch.manual_seed(0)
is_ddp = dist.is_initialized()
train_set, test_set = Stripes(256, True), Stripes(64, False)
sampler = DistributedSampler(train_set) if is_ddp else None
loader = DataLoader(train_set, batch_size=16, sampler=sampler, shuffle=sampler is None)
model = Net()
if is_ddp:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=lr, epochs=3, steps_per_epoch=len(loader)
)
scaler = torch.amp.GradScaler("cpu", enabled=False)
for epoch in range(3):
    model.train()
    if sampler:
        sampler.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
model.eval()
with torch.inference_mode():
    correct = sum(
        (model(images).argmax(1) == labels).sum().item()
        for images, labels in DataLoader(test_set, batch_size=32)
    )
accuracy = correct / len(test_set)
