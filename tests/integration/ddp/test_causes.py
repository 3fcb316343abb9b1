"""What a rank has printed about its end is told with the error, and the error is in its log."""

from __future__ import annotations

import pytest

from jupyter_ddl import train
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import RunFailedError

pytestmark = pytest.mark.integration

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser(prog="train.py")
parser.add_argument("--data", required=True)
parser.parse_args([])
"""

COMPILER = """
import subprocess, sys
print("epoch 1 is through")
if rank() == 1:
    broken = "import sys; sys.exit('model.c:7: error: expected a semicolon')"
    subprocess.run([sys.executable, "-c", broken], check=True)
"""

SPAWN = """
import torch
import torch.multiprocessing as mp
import torch.distributed as dist

seen = []
def worker(rank, world_size):
    total = torch.ones(1) * (rank + 1)
    dist.all_reduce(total)
    seen.append([rank, world_size, total.item()])

mp.spawn(worker, args=(2,), nprocs=NPROCS, join=True)
seen
"""


def test_argparse_is_told_with_its_own_words_and_not_tried_twice(cluster: object) -> None:
    with pytest.raises(RunFailedError, match=r"sys\.exit\(2\)") as failed:
        train(ARGPARSE, 1, namespace={})
    assert "the following arguments are required: --data" in failed.value.fields["traceback"]
    assert "after 1 round" in failed.value.message


def test_the_message_of_a_process_that_failed_stands_below_the_error(cluster: object) -> None:
    with pytest.raises(RunFailedError, match="rank 1: Command") as failed:
        train(COMPILER, 2, namespace={}, max_restarts=0)
    assert failed.value.fields["traceback"].rstrip().endswith("error: expected a semicolon")
    log = Run(failed.value.fields["run_id"]).logs(1)
    assert "CalledProcessError" in log, "the error stands in the rank's log as well"
    assert log.index("expected a semicolon") < log.index("In [")


def test_spawn_calls_each_rank_once_and_names_the_way_when_the_numbers_differ(
    cluster: object,
) -> None:
    values = train(SPAWN.replace("NPROCS", "2"), 2, namespace={}).values
    assert values == [[[rank, 2, 3.0]] for rank in range(2)]
    with pytest.raises(RunFailedError, match=r"nprocs=4.*2 ranks.*-n 4"):
        train(SPAWN.replace("NPROCS", "4"), 2, namespace={}, max_restarts=0)
