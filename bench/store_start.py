"""From opening a store to two processes' first all-reduce: the token store against TCPStore."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Literal

import torch
import torch.distributed as dist

from bench.harness import is_quick, tell

__all__: list[str] = []

_HOST = "127.0.0.1"
_TOKEN = "of this round"
_TIMEOUT = timedelta(seconds=60)
_Kind = Literal["token", "plain"]


def measure() -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    # What both of them need is imported here, once: the processes are forked.
    from jupyter_ddl.ranks.token_store import StoreServer, TokenStore  # noqa: F401

    _seconds("token"), _seconds("plain")
    pairs = [(_seconds("token"), _seconds("plain")) for _ in range(5 if is_quick() else 20)]
    tell(
        {
            "token_s": [token for token, _ in pairs],
            "plain_s": [plain for _, plain in pairs],
        }
    )


def _seconds(kind: _Kind) -> float:
    """Until the slower one of both has its result; both processes are there before it begins."""
    context = multiprocessing.get_context("fork")
    ours, theirs = zip(*(context.Pipe() for _ in range(2)), strict=True)
    processes = [context.Process(target=_rank, args=(n, kind, theirs[n])) for n in range(2)]
    for process in processes:
        process.start()
    for pipe in ours:
        pipe.recv()
    began_s = time.perf_counter()
    ours[0].send(0)
    ours[1].send(ours[0].recv())
    done_s = max(pipe.recv() for pipe in ours)
    for process in processes:
        process.join()
    return float(done_s - began_s)


def _rank(rank: int, kind: _Kind, pipe: Connection) -> None:
    pipe.send("here")
    store, port = _store(rank, kind, pipe.recv())
    if rank == 0:
        pipe.send(port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=_TIMEOUT)
    dist.all_reduce(torch.ones(1))
    pipe.send(time.perf_counter())
    dist.barrier()
    os._exit(0)


def _store(rank: int, kind: _Kind, port: int) -> tuple[Any, int]:
    if kind == "plain":
        store = dist.TCPStore(
            _HOST, port, 2, is_master=rank == 0, timeout=_TIMEOUT, wait_for_workers=False
        )
        return store, store.port
    from jupyter_ddl.ranks.token_store import StoreServer, TokenStore

    if rank == 0:
        listener = socket.socket()
        listener.bind((_HOST, 0))
        port = StoreServer(listener, _TOKEN).port
    return TokenStore(_HOST, port, _TOKEN, _TIMEOUT), port


if __name__ == "__main__":
    measure()
