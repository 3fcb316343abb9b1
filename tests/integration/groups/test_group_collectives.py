"""Collectives between the cells of a persistent group."""

from __future__ import annotations

import os
import re
import signal
import threading

import pytest

from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.group import RankGroup, open_group
from tests.until import PATIENCE_S, until

pytest.importorskip("torch", reason="collectives are torch's")
pytestmark = pytest.mark.integration

_SETUP = "import torch, torch.distributed as dist\nt = torch.ones(1) * (rank() + 1)\n"


def interrupt_in_collective(group: RankGroup, cell: str, targets: list[int]) -> str:
    """Once it was told who waits, which is returned."""
    notes: list[str] = []

    def work() -> None:
        until(lambda: any(notes), PATIENCE_S, "a word of who waits")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        group.execute(
            cell,
            targets=targets,
            on_progress=lambda _, seen: notes.append(seen.note if seen is not None else ""),
        )
    thread.join()
    return next(filter(None, notes))


def test_ranks_reduce_over_all_and_go_on_after_a_collective_that_hung(cluster: Cluster) -> None:
    group = open_group(2)
    assert cluster.status().groups[0].has_process_group
    reduced = group.execute(f"{_SETUP}dist.all_reduce(t)\nt.item()")
    assert reduced.values == [3.0, 3.0]

    # Rank 1 does not take part, so rank 0 would wait for two minutes.
    told = interrupt_in_collective(group, "n = 1\ndist.all_reduce(t)\n", targets=[0])
    assert re.match(r"after \d+ s rank 0 waits in all_reduce at line 3: do all ranks make", told)
    assert told.endswith("; rank 1 does not execute it")

    again = group.execute("t = torch.ones(1)\ndist.all_reduce(t)\nt.item()")
    assert again.values == [2.0, 2.0]


def test_without_init_a_cell_can_make_the_process_group_itself(cluster: Cluster) -> None:
    group = open_group(2, initialize=False)
    made = group.execute(f"{_SETUP}dist.init_process_group('gloo')\ndist.all_reduce(t)\nt.item()\n")
    assert made.values == [3.0, 3.0]


def test_prepared_models_train_alike_on_all_ranks(cluster: Cluster) -> None:
    group = open_group(2)
    cell = (
        "import torch\n"
        "torch.manual_seed(rank())\n"
        "model = prepare(torch.nn.Linear(2, 1))\n"
        "model(torch.ones(4, 2) * (rank() + 1)).sum().backward()\n"
        "[p.grad.sum().item() for p in model.parameters()]\n"
    )
    first, second = group.execute(cell).values
    assert first == second
