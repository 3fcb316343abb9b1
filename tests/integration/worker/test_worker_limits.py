"""What a worker does when it can't have ranks at all, or can't get rid of one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import AttemptFinished, EventChunk, Notice, RankEvent
from jupyter_ddl.worker import rank_process
from jupyter_ddl.worker import zygote_process as zygote
from jupyter_ddl.worker.chunks import ChunkArchive, ChunkRelay
from jupyter_ddl.worker.execution import Execution
from jupyter_ddl.worker.rank_pool import RankPool
from jupyter_ddl.worker.rank_process import RankEnd, RankProcess
from jupyter_ddl.worker.zygote_process import WorkerSettings

pytestmark = pytest.mark.integration


async def execute_here(tmp_path: Path) -> list[RankEvent]:
    """Execute two trials in this process's own pool, without Dask."""
    trials = tuple(TrialAssignment(trial=n, attempt=1, params={}, seed=n) for n in range(2))
    assignment = Assignment("r1", "r1-a", "0" * 64, trials, str(tmp_path), (), "topic")
    chunks: list[bytes] = []
    pool = RankPool(WorkerSettings(owner_token="test"), lambda _: None)
    relay = ChunkRelay("r1", "r1-a", chunks.append, ChunkArchive())
    await asyncio.wait_for(Execution(assignment, pool, relay, "w").run(), 20)
    relay.close()
    await pool.close()
    decoded = [msgspec.msgpack.decode(chunk, type=EventChunk) for chunk in chunks]
    return [event for chunk in decoded for event in chunk.events]


def check_evicted(events: list[RankEvent], why: str) -> None:
    notice, *ends = events
    assert isinstance(notice, Notice)
    assert why in notice.text
    assert [end.outcome for end in ends if isinstance(end, AttemptFinished)] == ["evicted"] * 2


def test_a_zygote_that_ends_at_once_evicts_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    check_evicted(asyncio.run(execute_here(tmp_path)), "has ended")


def test_a_zygote_that_can_not_be_started_evicts_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    check_evicted(asyncio.run(execute_here(tmp_path)), "No such file")


def test_a_zygote_that_does_not_answer_evicts_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 60\n")
    mute.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(mute))
    monkeypatch.setattr(zygote, "START_TIMEOUT_S", 0.2)
    monkeypatch.setattr(zygote, "_CLOSE_TIMEOUT_S", 0.2)
    check_evicted(asyncio.run(execute_here(tmp_path)), "did not answer")


def test_a_rank_that_can_not_be_killed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_process, "_UNKILLABLE_S", 0.05)

    async def body() -> RankEnd:
        rank = RankProcess("n", "r1", "p")  # without a pid no signal reaches anything
        rank.kill("memory", "too much")
        return await asyncio.wait_for(rank.ended, 5)

    end = asyncio.run(body())
    assert end.cause == "unkillable"
    assert "can't be killed: check the host" in end.detail
