# An objective(config) as Ray Tune takes it, called once with a config of the cell's own names.
# result = score
# search = --grid lr=0.001,0.1 --metric score
# needs = torch
# %%
import torch


def objective(config):
    torch.manual_seed(0)
    x = torch.randn(128, 4)
    y = (x[:, 0] > 0).float()
    net = torch.nn.Sequential(
        torch.nn.Linear(4, config["width"]), torch.nn.Tanh(), torch.nn.Linear(config["width"], 1)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"])
    for _ in range(config["epochs"]):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y)
        loss.backward()
        optimizer.step()
    return {"score": float(((net(x)[:, 0] > 0) == y.bool()).float().mean())}


# %% train
lr = 0.1
score = objective({"lr": lr, "width": 16, "epochs": 60})["score"]
