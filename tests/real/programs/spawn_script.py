# A script that starts its processes by mp.spawn, finds a free port.
# result = __import__("json").load(open("sums.json"))
# plain = python
# ddp = -n 2
# search = --ranks-per-trial 2 --grid scale=1.0,2.0 --metric total
# tolerance = 1e-6
# needs = torch
# %% train
import json
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

scale = 1.0


def find_free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def worker(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    value = torch.full((4,), scale * (rank + 1))
    dist.all_reduce(value)
    gathered = [torch.zeros(1) for _ in range(world_size)]
    dist.all_gather(gathered, torch.tensor([float(rank)]))
    if rank == 0:
        with open("sums.json", "w") as f:
            json.dump([value.sum().item(), *(g.item() for g in gathered)], f)
    dist.barrier()
    dist.destroy_process_group()


def main():
    world_size = 2
    mp.spawn(worker, args=(world_size, find_free_port()), nprocs=world_size)


if __name__ == "__main__":
    main()
    with open("sums.json") as f:
        total = json.load(f)[0]
