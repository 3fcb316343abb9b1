"""Rank groups in which one rank fails in an awkward moment: the first cause is told, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.session import session
from jupyter_ddl.errors import PlacementError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import AttemptFinished, Failure, Reported
from jupyter_ddl.protocol.requests import WatchRun
from jupyter_ddl.protocol.sampling import PrunerSpec
from jupyter_ddl.protocol.space import RandInt
from jupyter_ddl.verbs.search import Search
from tests.integration.ddp.fault_runs import Started, start
from tests.until import until

pytestmark = pytest.mark.integration

IN_COLLECTIVE = """
import torch
import torch.distributed as dist
print("begun", rank())
report(step=0)
if rank() == 1:
    {fault}
{collective}
"""


def _failure(run: Started) -> Failure:
    until(lambda: run.run.snapshot().finished_at_s, 30.0, "the end of the run")
    end = run.events(AttemptFinished)[-1]
    assert end.outcome == "failed"
    assert end.failure is not None
    return end.failure


@pytest.mark.parametrize(
    "collective",
    [
        "dist.all_reduce(torch.ones(4))",
        "dist.barrier()",
        "dist.broadcast(torch.ones(4), src=1)",
        "dist.all_gather_object([None, None], {'a': 1})",
        "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))",
    ],
)
def test_an_exception_on_one_rank_is_the_first_cause_in_every_collective(
    cluster: object, collective: str
) -> None:
    source = IN_COLLECTIVE.format(fault="raise ValueError('boom')", collective=collective)
    failure = _failure(start(source, max_own_failures=1))
    assert (failure.rank, failure.line, failure.type_name) == (1, 7, "ValueError")
    assert failure.message.startswith("rank 1: boom")


def test_a_crash_is_the_first_cause_although_the_others_fail_earlier(cluster: object) -> None:
    source = IN_COLLECTIVE.format(fault="os._exit(7)", collective="dist.all_reduce(torch.ones(4))")
    failure = _failure(start(source.replace("import torch\n", "import os, torch\n", 1)))
    assert (failure.rank, failure.kind, failure.type_name) == (1, "crash", "exit code 7")


def test_a_rank_that_skips_a_collective_is_named_when_the_other_breaks(cluster: object) -> None:
    source = (
        "import os\nimport torch\nimport torch.distributed as dist\nreport(step=0)\n"
        "if rank() == 0:\n    dist.all_reduce(torch.ones(4))\n"
    )
    run = start(source, max_own_failures=1, hang_timeout_s=3.0)
    failure = _failure(run)
    assert "calls" in failure.message


def test_a_rank_that_dies_at_its_first_line_ends_the_round(cluster: object) -> None:
    source = (
        "import os, time, torch\nos._exit(9) if rank() == 0 else report(step=0)\ntime.sleep(60)\n"
    )
    failure = _failure(start(source, max_own_failures=1))
    assert (failure.kind, failure.rank) == ("crash", 0)


def test_a_rank_that_dies_behind_the_cell_s_last_line_ends_the_round(cluster: object) -> None:
    source = (
        "import atexit, os, threading, time, torch\n"
        "report(step=0)\n"
        "def die(os=os, time=time):\n    time.sleep(0.3)\n    os._exit(5)\n"
        "threading.Thread(target=die, daemon=True).start() if rank() == 0 else time.sleep(2)\n"
    )
    failure = _failure(start(source, max_own_failures=1))
    assert (failure.kind, failure.rank) == ("crash", 0)


def test_the_log_of_every_rank_is_whole_after_a_kill(cluster: object) -> None:
    source = (
        "import os, time, torch\nprint('first', rank(), flush=True)\nreport(step=0)\n"
        "print('last', rank())\ntorch.distributed.barrier()\n"
        "os.kill(os.getpid(), 9) if rank() == 1 else time.sleep(60)\n"
    )
    run = start(source, max_own_failures=1)
    _failure(run)
    for rank, end in run.ranks_ended(1).items():
        (started,) = [
            e
            for e in run.all_events()
            if getattr(e, "log_start", None) is not None and getattr(e, "rank", None) == rank
        ]
        assert end.log_end is not None
        path = run.run.directory / "logs" / started.log
        text = path.read_bytes()[started.log_start : end.log_end].decode()
        assert f"first {rank}" in text
        assert f"last {rank}" in text


def test_more_ranks_than_slots_are_refused_with_a_way_out(cluster: object) -> None:
    with pytest.raises(PlacementError, match="3 ranks need as many slots, the cluster has 2") as e:
        start("import torch\n", n_ranks=3)
    assert "%cluster scale 3" in e.value.message
    assert (e.value.n_slots, e.value.n_free) == (2, 2)


def test_gpus_are_refused_where_there_are_none(cluster: object) -> None:
    if Path("/proc/driver/nvidia/gpus").exists():
        pytest.skip("this host has GPUs")
    with pytest.raises(PlacementError, match=r"the 2 workers of this cluster have no GPU \(n/a"):
        start("import torch\n", gpus_per_rank=1)


def test_a_group_that_waits_tells_who_holds_the_slots(cluster: object) -> None:
    first = start("import time, torch\nreport(step=0)\ntime.sleep(60)\n")
    first.wait_for_step(1, more=1)
    second = start("import torch\nreport(step=0)\n")
    asked = session()

    def paused() -> str:
        return str(asked.ask("test", WatchRun(second.run.id)).snapshot.decode().paused)

    text = until(paused, 10.0, "a reason")
    held = f"0 free (2 held by run {first.run.id})"
    assert text.startswith(f"2 ranks wait: the cluster has 2 slots, {held}")
    first.stop()
    until(lambda: second.run.snapshot().state == "complete", 20.0, "the second run")


PRUNED = """
import torch
import torch.distributed as dist
for step in range(30):
    dist.barrier()
    dist.all_reduce(torch.ones(4))
    report(step=step, score=float(x * step))
"""


def test_a_search_of_groups_prunes_without_a_hanging_collective(cluster: object) -> None:
    verb = Search(
        metric="score",
        mode="max",
        n_trials=12,
        space={"x": RandInt(low=1, high=12)},
        pruner=PrunerSpec("asha", {"eta": 2}),
        ranks_per_trial=2,
    )
    run = start(PRUNED, verb=verb)
    until(lambda: run.run.snapshot().finished_at_s, 90.0, "the end of the search")
    counts = run.run.snapshot().counts
    assert run.run.snapshot().state == "complete"
    assert counts.pruned + counts.complete == 12
    assert counts.pruned >= 1
    assert audit(run.all_events()) == []
    assert {event.rank for event in run.events(Reported)} == {0, 1}
