# A pipeline of two stages in one cell, with the schedule of GPipe.
# result = final
# plain = torchrun --nproc-per-node 2
# ddp = -n 2
# search = --ranks-per-trial 2 --grid lr=0.01,0.5 --metric final --mode min
# tolerance = 1e-5
# needs = torch
# %% train
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

lr = 0.5
if not dist.is_initialized():
    dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
stage_module = nn.Sequential(nn.Linear(12, 12), nn.Tanh())
stage = PipelineStage(stage_module, rank, world_size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.MSELoss())
optimizer = torch.optim.SGD(stage_module.parameters(), lr=lr)
generator = torch.Generator().manual_seed(7)
x, y = torch.randn(16, 12, generator=generator), torch.rand(16, 12, generator=generator)
for step in range(5):
    optimizer.zero_grad()
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=losses)
    optimizer.step()
mean = torch.stack(losses).mean() if losses else torch.zeros(())
mean = mean.detach().clone()
dist.broadcast(mean, src=world_size - 1)
final = mean.item()
dist.destroy_process_group()
