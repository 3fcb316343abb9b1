# FSDP2 with a distributed checkpoint that a second model is loaded from.
# result = outcome
# plain = torchrun --nproc-per-node 2
# ddp = -n 2
# search = --ranks-per-trial 2 --grid lr=0.0001,0.01 --metric final_loss --mode min
# tolerance = 1e-5
# needs = torch
# %% train
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

if not dist.is_initialized():
    dist.init_process_group("gloo")
lr = 1e-2
mesh = init_device_mesh("cpu", (dist.get_world_size(),))


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=lr)


model, optimizer = build()
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(8):
    x = torch.randn(16, 16, generator=generator)
    loss = nn.functional.mse_loss(model(x), x[:, :4])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
final_loss = loss.item()

model_state, optimizer_state = get_state_dict(model, optimizer)
dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id="checkpoint")

again, optimizer_again = build()
model_state, optimizer_state = get_state_dict(again, optimizer_again)
dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id="checkpoint")
set_state_dict(
    again,
    optimizer_again,
    model_state_dict=model_state,
    optim_state_dict=optimizer_state,
)
x = torch.ones(2, 16)
with torch.no_grad():
    before, after = model(x).sum().item(), again(x).sum().item()
outcome = [before, after]
