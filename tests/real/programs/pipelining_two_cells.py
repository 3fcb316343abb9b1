# The same kind of pipeline, split from a whole model in one cell and run in the next.
# result = final
# plain = torchrun --nproc-per-node 2
# run = -n 2 --push auto
# tolerance = 1e-5
# needs = torch
# %%
import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self, dim=12, n_layers=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(n_layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


# %% train
import torch.distributed as dist
from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline

if not dist.is_initialized():
    dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
x, y = torch.randn(16, 12), torch.rand(16, 12)
pipe = pipeline(MLP(), mb_args=(x[:4],), split_spec={"layers.2": SplitPoint.BEGINNING})
stage = pipe.build_stage(rank, torch.device("cpu"))
# %% train
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
losses = []
if rank == 0:
    schedule.step(x)
else:
    schedule.step(target=y, losses=losses)
mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
dist.broadcast(mean, src=1)
final = mean.item()
dist.destroy_process_group()
