"""Torch code that knows nothing of this package, unchanged in a rank group."""

from __future__ import annotations

import pytest

from jupyter_ddl import train

pytestmark = pytest.mark.integration

PLAIN = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

x = torch.arange(24.0).reshape(12, 2)
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data, shuffle=True, seed=4)
loader = DataLoader(data, batch_size=3, sampler=sampler, num_workers=2)
model = DDP(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
state = resume()
if state:
    model.load_state_dict(state["model"])
seen = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        seen += inputs[:, 0].tolist()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
checkpoint(step=1, model=model, optimizer=optimizer)
if not state and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    dist.barrier()
    raise RuntimeError("once more")
weight = model.module.weight.detach().clone()
others = [torch.empty_like(weight) for _ in range(2)]
dist.all_gather(others, weight)
[bool(state), sorted(seen), torch.equal(*others), dist.get_backend(), weight.tolist()]
"""

INIT = """
import os
import torch
import torch.distributed as dist

before = dist.is_initialized()
sums = []
for _ in range(3):
    dist.init_process_group("gloo", init_method="env://")
    ones = torch.ones(2)
    dist.all_reduce(ones)
    sums.append(ones.tolist())
    dist.destroy_process_group()
[before, sums, int(os.environ["RANK"]) == rank()]
"""

OTHERS = """
IMPORTS
import json, os, socket

config = json.loads(os.environ["TF_CONFIG"])
host, _, port = config["cluster"]["worker"][config["task"]["index"]].rpartition(":")
with socket.socket() as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, int(port)))
jax = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("JAX_")}
torchrun = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
            "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
[config, jax, {name: os.environ[name] for name in torchrun}]
"""
"""What TensorFlow and JAX would read, and whether this rank could open its own port."""


def test_ddp_distributed_sampler_and_loader_workers_go_on_from_a_checkpoint(
    cluster: object,
) -> None:
    run = train(PLAIN, 2, namespace={}, max_restarts=1)
    first, second = run.values
    assert first[0], "the second round found the checkpoint of the first"
    assert sorted(first[1] + second[1]) == sorted([float(n) for n in range(0, 24, 2)] * 2)
    assert first[2]
    assert first[3] == "gloo"
    assert first[4] == second[4]


def test_a_cell_may_initialise_the_group_itself_and_again(cluster: object) -> None:
    run = train(INIT, 2, namespace={}, initialize=False)
    assert run.values == [[False, [[2.0, 2.0]] * 3, True]] * 2
    run = train(INIT, 2, namespace={})  # what stands there gives way to the script's own
    assert run.values == [[True, [[2.0, 2.0]] * 3, True]] * 2
    # After leaving the group that was there already.
    run = train(
        "import torch.distributed as dist\ndist.destroy_process_group()" + INIT, 2, namespace={}
    )
    assert run.values == [[False, [[2.0, 2.0]] * 3, True]] * 2


@pytest.mark.parametrize("imports", ["", "import torch, torch.distributed"])
def test_ranks_have_what_tensorflow_and_jax_look_for(cluster: object, imports: str) -> None:
    first, second = train(OTHERS.replace("IMPORTS", imports), 2, namespace={}).values
    workers = first[0]["cluster"]["worker"]
    assert first[0]["cluster"] == second[0]["cluster"], "every rank has the same list"
    assert [each[0]["task"] for each in (first, second)] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
    hosts, ports = zip(*(address.split(":") for address in workers), strict=True)
    assert set(hosts) == {"127.0.0.1"}
    assert len(set(ports)) == 2
    for rank, (_, jax, torchrun) in enumerate((first, second)):
        assert jax["JAX_COORDINATOR_ADDRESS"] == workers[0]
        assert (jax["JAX_NUM_PROCESSES"], jax["JAX_PROCESS_ID"]) == ("2", str(rank))
        assert (torchrun["RANK"], torchrun["LOCAL_RANK"]) == (str(rank), str(rank))
        assert (torchrun["WORLD_SIZE"], torchrun["LOCAL_WORLD_SIZE"]) == ("2", "2")
        assert torchrun["GROUP_RANK"] == "0"
    if imports:
        assert first[2]["MASTER_PORT"] not in ports, "torch's store has that one"
    for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        assert first[2][name] == second[2][name]
