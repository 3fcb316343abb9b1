# A training loop as a class, with its parts defined over ten cells.
# result = best
# ddp = -n 2
# tolerance = 1e-4
# search = --grid lr=0.001,0.1 --metric best --mode min
# needs = torch
# %%
import copy
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn

# %%
CONFIG = {"hidden": 12, "epochs": 6, "batch_size": 32}
# %%
torch.manual_seed(0)
X = torch.randn(256, 5)
Y = (X[:, :1] * X[:, 1:2]).tanh()


# %%
class Timer:
    def __init__(self):
        self.calls = defaultdict(int)

    def __call__(self, name):
        self.calls[name] += 1


# %%
def make_model(hidden):
    return nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 1))


# %%
class Callback:
    def on_epoch_end(self, trainer, loss):
        pass


# %%
class KeepBest(Callback):
    def __init__(self):
        self.best, self.state = float("inf"), None

    def on_epoch_end(self, trainer, loss):
        if loss < self.best:
            self.best, self.state = loss, copy.deepcopy(trainer.model.state_dict())


# %%
class BaseTrainer:
    def __init__(self, model, optimizer, callbacks=()):
        self.model, self.optimizer, self.callbacks = model, optimizer, list(callbacks)
        self.timer = Timer()

    def fit(self, x, y, epochs, batch_size):
        for epoch in range(epochs):
            for start in range(0, len(x), batch_size):
                self.step(x[start : start + batch_size], y[start : start + batch_size])
            loss = self.evaluate(x, y)
            for callback in self.callbacks:
                callback.on_epoch_end(self, loss)

    def step(self, x, y):
        raise NotImplementedError


# %%
class Trainer(BaseTrainer):
    def step(self, x, y):
        self.timer("step")
        if dist.is_initialized():
            x, y = x[dist.get_rank() :: 2], y[dist.get_rank() :: 2]
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(x), y).backward()
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, x, y):
        return nn.functional.mse_loss(self.model(x), y).item()


# %% train
lr = 0.1
torch.manual_seed(1)
net = make_model(CONFIG["hidden"])
if dist.is_initialized():
    net = nn.parallel.DistributedDataParallel(net)
keeper = KeepBest()
trainer = Trainer(net, torch.optim.SGD(net.parameters(), lr=lr), [keeper])
trainer.fit(X, Y, CONFIG["epochs"], CONFIG["batch_size"])
assert trainer.timer.calls["step"] == CONFIG["epochs"] * 8
best = keeper.best
