"""Sockets of trainings: none that another user, or another machine, gets an answer from."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl import train
from jupyter_ddl.client.clusters import connect_cluster
from jupyter_ddl.client.group import open_group
from tests.integration.backends.foreign import foreign_cluster
from tests.leaks import Home

pytestmark = pytest.mark.integration

_LOOK = """
import concurrent.futures
import socket
import psutil
import torch
import torch.distributed as dist

def answer_of(address):
    try:
        with socket.create_connection(address, timeout=1.0):
            return "let in"
    except OSError as error:
        return type(error).__name__

def open_sockets():
    dist.all_reduce(torch.ones(1))
    mine = psutil.Process().net_connections(kind="inet")
    found = [each.laddr for each in mine if each.status == "LISTEN"]
    with concurrent.futures.ThreadPoolExecutor(len(found) + 1) as pool:
        said = list(pool.map(answer_of, found))
    answers = [[each.ip, answer] for each, answer in zip(found, said)]
    dist.barrier()
    return answers

"""
_SCRIPT = """
import os
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
dist.init_process_group("gloo", rank=rank(), world_size=world_size())
open_sockets()
"""
_SUBGROUPS = """
from torch.distributed.device_mesh import init_device_mesh
dist.new_group([0, 1])
mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "b"))
open_sockets()
"""
_HOROVOD = "import jupyter_ddl.horovod as hvd\nhvd.init()\nopen_sockets()\n"
_RPC = """
import torch.distributed.rpc as rpc
names = [f"rank-{each}" for each in range(world_size())]
options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=60)
rpc.init_rpc(names[rank()], rank=rank(), world_size=world_size(), rpc_backend_options=options)
answers = open_sockets()
assert len(answers) > 2  # gloo's own and the RPC's
# It goes on among the ranks, also with what is large.
told = rpc.rpc_sync(names[1 - rank()], torch.add, args=(torch.ones(1_000_000), rank()))
assert told.sum() == 1_000_000 * (1 + rank())
rpc.shutdown()
answers
"""
_NOBODY_ANSWERS = [["127.0.0.1", "TimeoutError"]]


def _is_closed(values: list[Any]) -> None:
    """Gloo's sockets are there, on loopback, and nobody who comes now is let in."""
    assert all(value[:1] == _NOBODY_ANSWERS for value in values), values
    assert all(socket == _NOBODY_ANSWERS[0] for value in values for socket in value), values


@pytest.mark.parametrize("code", ["open_sockets()", _SCRIPT, _SUBGROUPS, _HOROVOD, _RPC])
def test_every_port_of_a_training_is_on_loopback_and_answers_no_stranger(
    cluster: object, code: str
) -> None:
    _is_closed(train(_LOOK + code, 2, namespace={}).values)


def test_every_port_of_a_persistent_group_is_on_loopback_and_answers_no_stranger(
    cluster: object,
) -> None:
    with open_group(2) as group:
        _is_closed(group.execute(_LOOK + "open_sockets()").values)


_ACROSS = """
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo")

def said_to_strangers(address):
    with socket.create_connection(address, timeout=60) as stranger:
        greeting = stranger.recv(100)
        stranger.sendall(bytes(4))
        return len(greeting), stranger.recv(100)

answers = open_sockets()
served = [each.laddr for each in psutil.Process().net_connections(kind="inet")
          if each.status == "LISTEN" and answer_of(each.laddr) == "let in"]
dist.barrier()
[[*each, *said_to_strangers(each)] for each in served]
"""


def test_across_hosts_ranks_share_a_store_that_tells_strangers_nothing(home: Home) -> None:
    """Two workers with an address each: the ranks take them for two hosts."""
    with foreign_cluster(home, n_workers=0, tls=False) as foreign:
        for host in ("127.0.0.1", "127.0.0.2"):
            foreign.add_workers(1, host=host)
        connected = connect_cluster(foreign.address)
        run = train("import os\n" + _LOOK + _ACROSS, 2, namespace={}, initialize=False)
        connected.stop()
    first, second = run.values
    (store,) = first
    host, _, n_bytes_of_greeting, answer = store
    assert (host, n_bytes_of_greeting < 64, answer) == ("127.0.0.1", True, b"")
    assert second == []
