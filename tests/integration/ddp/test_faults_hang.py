"""Rank groups that make no step any more: who hangs, at which line, and on with the next round."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest

from jupyter_ddl.client.api import train
from jupyter_ddl.errors import RunFailedError
from jupyter_ddl.protocol.events import CheckpointSaved, HangVerdict, Notice, Reported
from tests.integration.ddp.fault_runs import TRAIN, Started, kill, start
from tests.until import until

pytestmark = pytest.mark.integration

_TIMEOUT_S = 3.0
_MARGIN_S = 15.0

UNEQUAL = """
import torch
import torch.distributed as dist
ones = torch.ones(4)
if rank() == 1:
    dist.all_reduce(ones)
dist.barrier()
report(step=0)
"""

IDLE = """
import time
import torch
import torch.distributed as dist
report(step=0)
if rank() == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(4))
"""

BUSY = """
import time
import torch
import torch.distributed as dist
report(step=0)
if rank() == 1:
    before_s = time.process_time()
    sum(range(1_000_000))
    n = int(4_000_000 / (time.process_time() - before_s))
    sum(range(n))
dist.all_reduce(torch.ones(4))
report(step=1)
"""
"""Rank 1 adds up for 4 s, longer than the timeout, in one call of C that holds the GIL."""

LOOP = """
import torch
import torch.distributed as dist
if rank() == 1:
    n = 0
    while True:
        n += 1
dist.all_reduce(torch.ones(4))
report(step=0)
"""
"""Rank 1 never comes to its first step, nor lets the others come to theirs."""


def _verdict(run: Started, timeout_s: float = _TIMEOUT_S + _MARGIN_S) -> HangVerdict:
    found = until(lambda: run.events(HangVerdict), timeout_s, "a verdict")
    assert isinstance(found[0], HangVerdict)
    return found[0]


def _stacks(run: Started, verdict: HangVerdict) -> dict[str, str]:
    directory = run.run.directory / verdict.stacks_file
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_a_stopped_rank_is_named_with_its_line_and_the_group_goes_on(cluster: object) -> None:
    run = start(TRAIN, hang_timeout_s=_TIMEOUT_S)
    run.wait_for_step(1)
    stopped = run.pids(1)[1]
    stopped_at_s = kill(stopped, signal.SIGSTOP)
    verdict = _verdict(run)
    assert verdict.rank == 1
    assert verdict.text.startswith("rank 1 is stopped (SIGSTOP) at line ")
    assert "; rank 0 waits in all_reduce at line 8" in verdict.text
    run.wait_for_step(2, more=1)
    assert run.events(Reported, 2)[0].at_s - stopped_at_s <= _TIMEOUT_S + _MARGIN_S
    saved = run.events(CheckpointSaved, 1)[-1].step
    # A rank may be killed between the saving of a file and the word about it: one step further.
    assert run.events(Reported, 2)[0].step in (saved + 1, saved + 2)
    end = run.end_of(1)
    assert end.failure is not None
    assert (end.outcome, end.failure.kind) == ("failed", "hang")
    stacks = _stacks(run, verdict)
    assert set(stacks) == {"rank-0.txt", "rank-1.txt"}
    assert all('File "In [1]", line' in text for text in stacks.values())
    assert not psutil.pid_exists(stopped)
    run.stop()


def test_unequal_collectives_are_named_with_their_lines(cluster: object) -> None:
    run = start(UNEQUAL, hang_timeout_s=_TIMEOUT_S, max_own_failures=1)
    verdict = _verdict(run)
    assert verdict.rank in (0, 1)
    assert "waits in all_reduce at line 6" in verdict.text
    assert "waits in barrier at line 7" in verdict.text
    assert "same calls" in verdict.text
    until(lambda: run.run.snapshot().state == "failed", 15.0, "the failed run")
    with pytest.raises(RunFailedError) as failed:
        run.run.raise_for_failure()
    stacks = f"{verdict.text}; stacks of all ranks: {run.run.directory / verdict.stacks_file} ("
    assert stacks in failed.value.message


def test_a_rank_that_sleeps_keeps_the_others_waiting(cluster: object) -> None:
    run = start(IDLE, hang_timeout_s=_TIMEOUT_S, max_own_failures=1)
    verdict = _verdict(run)
    assert (verdict.rank, verdict.line) == (1, 7)
    assert (
        verdict.text == "rank 1 makes no progress at line 7; rank 0 waits in all_reduce at line 8"
    )


def test_a_rank_that_computes_in_c_with_the_gil_held_is_waited_for(cluster: object) -> None:
    run = start(BUSY, hang_timeout_s=1.5, max_own_failures=1)
    until(lambda: run.run.snapshot().finished_at_s, 90.0, "the end")
    assert run.events(HangVerdict) == []
    assert run.run.snapshot().state == "complete"
    first, last = run.events(Reported)[0], run.events(Reported)[-1]
    assert last.at_s - first.at_s > 1.5


def test_an_endless_loop_before_the_first_step_is_ended_where_others_wait(cluster: object) -> None:
    run = start(LOOP, hang_timeout_s=1.0, max_own_failures=1)
    verdict = _verdict(run, timeout_s=60.0)
    assert verdict.rank == 1
    assert verdict.line in (6, 7)
    assert "without a step" in verdict.text
    assert verdict.text.endswith("; rank 0 waits in all_reduce at line 8")
    until(lambda: run.run.snapshot().state == "failed", 15.0, "the failed run")
    assert not any(map(psutil.pid_exists, run.pids(1).values()))


def test_who_waits_for_a_rank_that_does_not_come_is_told_before_the_group_is_judged(
    cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.chdir(tmp_path)
    cell = "import torch.distributed as dist\nif rank == 1:\n    import never\ndist.barrier()\n"
    run = train(cell, 2, namespace={}, wait=False)

    def told() -> list[str]:
        """On a busy host, ranks that have not come to the cell are told of first."""
        notices = [each.text for each in run.events() if isinstance(each, Notice)]
        return [text for text in notices if text.startswith("no step after ")]

    (notice,) = until(told, 30, "a notice")
    assert re.fullmatch(
        r"no step after (15|30|60) s: rank 0 waits in barrier at line 5; rank 1 makes no progress "
        r"at line 4",
        notice,
    )
    run.cancel()
    run.wait()
