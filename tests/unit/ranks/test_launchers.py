"""Launchers of processes in a rank: each rank is one of the processes already."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.launchers import replace_launchers, replace_spawn_of_cells

if "alone" in sys.argv:
    replace_spawn_of_cells()
if "early" in sys.argv or "alone" in sys.argv:
    import torch.multiprocessing as mp
    from torch.multiprocessing import spawn
replace_launchers(RankPlace("g", rank=1, world_size=2))
import torch.multiprocessing as mp
from torch.multiprocessing import spawn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

calls = []
assert mp.spawn(lambda rank, word: calls.append((rank, word)), args=("a",), nprocs=2) is None
assert spawn(lambda rank: calls.append(rank), nprocs=2, join=False).join()
assert elastic_launch(LaunchConfig(1, 1, 2), lambda word: word)("b") == {1: "b"}
assert calls == [(1, "a"), 1], calls
for start in (lambda: mp.spawn(print, nprocs=4), elastic_launch(LaunchConfig(1, 1, 4), print)):
    try:
        start()
    except SpecError as error:
        assert "in a cell of 2 ranks" in error.message and "-n 4" in error.message
    else:
        raise AssertionError("four processes in two ranks")
"""


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_spawn_and_torchruns_launcher_call_the_function_once_in_each_rank() -> None:
    _run()


def test_the_same_where_torch_was_imported_before() -> None:
    _run("early")


def test_the_same_in_a_process_that_was_a_rank_alone_before() -> None:
    _run("alone")


ALONE = """
import os
from jupyter_ddl.errors import SpecError
from jupyter_ddl.ranks.launchers import replace_spawn_of_cells

replace_spawn_of_cells()
import torch.multiprocessing as mp

def ours(rank):
    calls.append(rank)

calls = []
mp.spawn(ours, nprocs=1)
assert calls == [0]
mp.spawn(os.path.join, args=(), nprocs=1, join=False)
mp.start_processes(ours, nprocs=2, start_method="fork")
try:
    mp.spawn(ours, nprocs=2)
except SpecError as error:
    assert "in a cell of 1 rank" in error.message and "--ranks-per-trial 2" in error.message
else:
    raise AssertionError("a process that would not find the function")
"""


def test_a_rank_alone_starts_no_process_that_would_not_find_the_function() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
