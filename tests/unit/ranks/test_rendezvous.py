"""Code that sets up a process group of its own in a rank without a group: no port is opened."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from jupyter_ddl.ranks.rendezvous import end_process_groups

# Each is what one trial does; all of them in one process, while a stranger has the port.
_SETUPS = {
    "env": """
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", PORT
init_process_group("gloo", rank=0, world_size=1)
""",
    "env of torchrun": """
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT, RANK="0", WORLD_SIZE="1")
init_process_group("gloo", init_method="env://")
""",
    "url": """
init_process_group("gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=0, world_size=1)
""",
    "rpc": """
import torch.distributed.rpc as rpc
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", PORT
rpc.init_rpc("worker0", rank=0, world_size=1)
assert rpc.rpc_sync("worker0", max, args=(1, 2)) == 2
rpc.shutdown()
init_process_group("gloo", rank=0, world_size=1)
""",
}
_USE = """
total = torch.ones(2)
torch.distributed.all_reduce(total)
parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
parallel(total[None]).sum().backward()
"""
_RUN = """
import json, os, sys
from jupyter_ddl.ranks.rendezvous import AloneRank
PORT, *cells = json.load(sys.stdin)
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
told = []
alone = AloneRank(told.append)
first = "import os, torch; from torch.distributed import init_process_group\\n"
for cell in cells:
    with alone.trial():
        names = {"PORT": PORT}
        exec(first + cell, names)
        if "total" in names:
            assert names["total"].tolist() == [1, 1]
print(json.dumps(told))
"""


def _trials(port: int, *cells: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps([str(port), *cells]),
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_trials_set_up_groups_at_a_port_that_others_have_one_after_another() -> None:
    tidy = [f"{setup}{_USE}torch.distributed.destroy_process_group()" for setup in _SETUPS.values()]
    left = [f"{setup}{_USE}" for setup in _SETUPS.values()]  # without a cleanup
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = _trials(other.getsockname()[1], *tidy, *tidy, *left)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


_FORKED = """
import multiprocessing, socket
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", PORT

def met(rank, said):
    for _ in range(2):  # a script may begin again
        if rank == 1:  # while rank 0 waits for it
            said.put(told_to_a_stranger())
        init_process_group("gloo", rank=rank, world_size=2)
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        torch.distributed.destroy_process_group()
        said.put(total.item())

def told_to_a_stranger():
    while True:
        try:
            stranger = socket.create_connection(("127.0.0.1", int(PORT)), timeout=60)
        except ConnectionRefusedError:  # not open yet: the test has a deadline
            continue
        with stranger:
            greeting = stranger.recv(100)
            stranger.sendall(bytes(4))
            return len(greeting) < 64, stranger.recv(100)

context = multiprocessing.get_context("fork")
said = context.Queue()
ranks = [context.Process(target=met, args=(rank, said)) for rank in range(2)]
for each in ranks:
    each.start()
found = [said.get() for _ in range(6)]
for each in ranks:
    each.join()
assert found.count(2.0) == 4 and found.count((True, b"")) == 2, found
assert [each.exitcode for each in ranks] == [0, 0]
"""


def test_processes_that_a_trial_forks_meet_at_a_port_that_tells_strangers_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    done = _trials(port, _FORKED)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("is_stuck", [False, True])
def test_the_end_of_process_groups_has_a_deadline(
    is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL waits in C++, without one of its own."""
    free, told = threading.Event(), list[str]()
    if not is_stuck:
        free.set()
    torch = SimpleNamespace(is_initialized=lambda: True, destroy_process_group=free.wait)
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)  # type: ignore[arg-type]
    end_process_groups(told.append, 0.1 if is_stuck else 60.0)
    free.set()
    assert bool(told) == is_stuck
