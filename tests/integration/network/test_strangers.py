"""No socket of any kind of run answers another Unix user, or anybody of another network."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_ddl.client.api import train
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.group import open_group
from jupyter_ddl.client.run import Run
from tests.integration.controller.test_sockets import as_nobody
from tests.integration.network.wire import Host, wire_of
from tests.integration.network.works import Fits
from tests.leaks import Home, processes_of
from tests.run_tools import SLEEPING, start_map, start_search, wait_for

pytestmark = pytest.mark.integration

_TRAINING = """
import time, torch, torch.distributed as dist
dist.all_reduce(torch.ones(1))
report(step=1, loss=0.0)
time.sleep(600)
"""
_STEPS = """
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
for _ in range(4):
    step(torch.ones(8, 3), torch.ones(8, 1))
report(step=1, loss=0.0)
time.sleep(600)
"""
_RPC = """
import time
import torch.distributed.rpc as rpc
rpc.init_rpc(f"rank-{rank()}", rank=rank(), world_size=world_size())
report(step=1, loss=0.0)
time.sleep(600)
"""
_HOROVOD = """
import time
import jupyter_ddl.horovod as hvd
hvd.init()
report(step=1, loss=0.0)
time.sleep(600)
"""
_HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
_SAID = (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 64, _HTTP_2)
_TLS_ALERT = "15"


@contextlib.contextmanager
def running(run: Run, is_there: Callable[[Any], bool]) -> Iterator[None]:
    wait_for(run, is_there, 90)
    try:
        yield
    finally:
        run.cancel("now")
        wait_for(run, lambda seen: seen.state == "cancelled")


def sleeping_search() -> contextlib.AbstractContextManager[None]:
    return running(start_search(SLEEPING, 2), lambda seen: seen.counts.running == 2)


def sleeping_map() -> contextlib.AbstractContextManager[None]:
    run = start_map("import time\ntime.sleep(600)\nitem", [1, 2])
    return running(run, lambda seen: seen.counts.running == 2)


def training(
    cell: str, n_reporting: int = 2, **options: Any
) -> Callable[[], contextlib.AbstractContextManager[None]]:
    def begin() -> contextlib.AbstractContextManager[None]:
        run = train(cell, 2, namespace={}, wait=False, **options)
        return running(run, lambda seen: [row.step for row in seen.ranks].count(1) == n_reporting)

    return begin


def strategy(name: str, n_reporting: int = 2) -> Callable[[], Any]:
    """Its ranks have made steps, so that all connections of theirs are there."""
    return training(_STEPS, n_reporting, strategy=name)


@contextlib.contextmanager
def cells() -> Iterator[None]:
    with open_group(2) as group:
        group.execute("import torch, torch.distributed as dist\ndist.all_reduce(torch.ones(1))")
        yield


@contextlib.contextmanager
def fits() -> Iterator[None]:
    work = Fits()
    work.begin(20)
    yield
    work.end()


KINDS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "search": sleeping_search,
    "map": sleeping_map,
    "training": training(_TRAINING),
    "ps-sync": strategy("ps-sync", 1),
    "ps-async": strategy("ps-async", 1),
    "local-sgd": strategy("local-sgd"),
    "pipeline": strategy("pipeline"),
    "torch.distributed.rpc": training(_RPC),
    "cells": cells,
    "horovod": training(_HOROVOD),
    "fits": fits,
}
_SLOW = ("horovod", "fits", "ps-sync", "local-sgd")


def open_sockets(home: Home) -> tuple[list[tuple[str, int]], list[str]]:
    """Where processes of a home are to be reached: by TCP or UDP, and by Unix sockets."""
    inet: set[tuple[str, int]] = set()
    unix: set[str] = set()
    for process in processes_of(home):
        with contextlib.suppress(psutil.Error, OSError):
            for each in process.net_connections(kind="inet"):
                is_open = each.status == psutil.CONN_LISTEN or each.type == socket.SOCK_DGRAM
                if is_open and not each.raddr:
                    inet.add((each.laddr.ip.removeprefix("::ffff:"), each.laddr.port))
            unix |= _listening_unix(process.pid)
    return sorted(inet), sorted(unix)


def _listening_unix(pid: int) -> set[str]:
    links = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        accepts = int(words[3], 16) & 0x10000
        if accepts and f"socket:[{words[6]}]" in links:
            found.add(words[7] if len(words) > 7 else "")
    return found


def answers(addresses: list[tuple[str, int]]) -> list[str]:
    """The first bytes that each of them says to whoever comes, in hexadecimal; or the refusal."""
    found = []
    for address in addresses:
        for said in _SAID:
            try:
                with socket.create_connection(address, timeout=0.3) as stranger:
                    stranger.settimeout(0.3)
                    stranger.sendall(said)
                    found.append(stranger.recv(100).hex())
            except OSError as error:
                found.append(type(error).__name__)
    return found


def refused(paths: list[str]) -> list[str]:
    found = []
    for path in paths:
        with socket.socket(socket.AF_UNIX) as stranger:
            try:
                stranger.connect("\0" + path[1:] if path.startswith("@") else path)
                found.append("let in")
            except OSError as error:
                found.append(type(error).__name__)
    return found


_FROM_THERE = """
import json, socket, sys
for host, port in json.loads(sys.argv[1]):
    try:
        with socket.create_connection((host, port), timeout=1):
            print("let in")
    except OSError as error:
        print(type(error).__name__)
"""


def from_there(host: Host, addresses: list[tuple[str, int]]) -> set[str]:
    command = [*host.enter, sys.executable, "-c", _FROM_THERE, json.dumps(addresses)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def there() -> Iterator[tuple[Host, Host]]:
    """This host, and one of another network namespace that reaches it."""
    with wire_of() as wire:
        yield wire.host(is_here=True), wire.host()


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in _SLOW)) for kind in KINDS],
)
def test_no_socket_of_any_kind_of_run_answers_a_stranger(
    cluster: Cluster, cluster_home: Home, there: tuple[Host, Host], kind: str
) -> None:
    here, other = there
    with KINDS[kind]():
        inet, unix = open_sockets(cluster_home)
        assert len(inet) >= 5  # a scheduler, two nannies, two workers
        said = as_nobody(lambda: answers(inet))
        silent = ("", _TLS_ALERT)
        assert [a for a in said if a[:2] not in silent and not a.endswith("Error")] == [], inet
        assert open_sockets(cluster_home) == (inet, unix), "who was spoken to is there as before"
        assert len(unix) == 2  # the controller's, and that of the process that forks its workers
        assert as_nobody(lambda: refused(unix)) == ["PermissionError"] * 2
        reached = [(here.address, port) for _, port in inet] + inet
        assert from_there(other, reached) == {"ConnectionRefusedError"}
        assert cluster.status().state == "ready"
