# Two workers of torch's RPC, one of which keeps the parameters.
# result = answers
# plain = torchrun --nproc-per-node 2
# ddp = -n 2 --no-init
# search = --ranks-per-trial 2 --grid lr=0.01,0.1 --metric error --mode min
# tolerance = 1e-6
# needs = torch
# %% train
import os

import torch
import torch.distributed.rpc as rpc

weights = torch.zeros(3)
lr = 0.1


def push(gradient):
    weights.sub_(lr * gradient)
    return weights.clone()


rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
answers = []
if rank == 0:
    target = torch.tensor([1.0, 2.0, 3.0])
    current = torch.zeros(3)
    for step in range(20):
        current = rpc.rpc_sync("worker1", push, args=(current - target,))
    answers = current.tolist()
error = sum(abs(a - b) for a, b in zip(answers, [1.0, 2.0, 3.0]))
rpc.shutdown()
