"""The shape of every tutorial: a script that names its own address, sets up, trains, cleans up."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from jupyter_ddl import train
from jupyter_ddl.errors import RunFailedError
from jupyter_ddl.protocol.events import Notice
from tests.integration.ddp.fault_runs import start
from tests.until import until

pytestmark = pytest.mark.integration

TUTORIAL = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import destroy_process_group, init_process_group

def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    init_process_group("gloo", rank=rank, world_size=world_size)

def cleanup():
    destroy_process_group()

def demo(rank, world_size):
    setup(rank, world_size)
    torch.manual_seed(rank)
    model = DDP(torch.nn.Linear(10, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    torch.nn.functional.mse_loss(model(torch.randn(20, 10)), torch.randn(20, 5)).backward()
    optimizer.step()
    total = model.module.weight.sum()
    dist.all_reduce(total)
    cleanup()
    return [round(total.item(), 4), os.environ["MASTER_PORT"]]

"""
TWICE = TUTORIAL + "[demo(rank(), world_size()), demo(rank(), world_size())]\n"

LATE = """
import os, time
import torch.distributed as dist
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "12355"
if rank() == 0:
    time.sleep(120)
dist.init_process_group("gloo", rank=rank(), world_size=world_size())
"""

OTHER_SIZE = """
import os
import torch.distributed as dist
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "TAKEN"
if rank() == 0:
    dist.init_process_group("gloo", rank=0, world_size=3)
"""

OTHER_NUMBERS = TUTORIAL + "[demo(1 - rank(), 2)[0] for _ in range(2)]\n"


@pytest.mark.parametrize("initialize", [True, False])
def test_a_script_with_its_own_port_runs_unchanged_and_twice(
    cluster: object, initialize: bool
) -> None:
    first, second = train(TWICE, 2, namespace={}, initialize=initialize).values
    assert first == second
    assert first[0] == first[1]
    assert first[0][1] == "12355"


def test_two_runs_side_by_side_and_a_stranger_may_have_the_same_port(cluster: object) -> None:
    with socket.create_server(("127.0.0.1", 12355)), ThreadPoolExecutor(2) as pool:
        cell = TUTORIAL + "demo(rank(), world_size())\n"
        runs = [pool.submit(train, cell, 1, namespace={}, initialize=i) for i in (True, False)]
        assert all(run.result().values[0][1] == "12355" for run in runs)


def test_ranks_that_number_themselves_anew_meet_at_the_port_that_they_name(cluster: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    first, second = train(OTHER_NUMBERS.replace("12355", port), 2, namespace={}).values
    assert first == second
    assert first[0] == first[1]


def test_a_rank_that_waits_for_another_says_so_while_it_waits(cluster: object) -> None:
    run = start(LATE)
    found = until(lambda: run.events(Notice), 60.0, "a sentence about the wait")
    assert "rank 1 has waited 15 s for rank 0 in init_process_group at 127.0.0.1:12355" in [
        notice.text for notice in found
    ]
    assert run.run.snapshot().notices[-1].startswith("rank 1 has waited")
    run.stop()


def test_a_port_in_use_is_one_line(cluster: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        cell = OTHER_SIZE.replace("TAKEN", port)
        with pytest.raises(RunFailedError, match=rf"{port}.* in use.*another MASTER") as failed:
            train(cell, 2, namespace={}, max_restarts=0)
        assert failed.value.message.count("\n") == 0
