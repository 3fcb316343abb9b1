"""Stops: at the next report, now, against ranks that do not want to, and of whole runs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jupyter_ddl.protocol.assignment import Assignment, StopRun, StopTrial
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted
from jupyter_ddl.protocol.group import RankPlace
from tests.integration.worker.worker_bench import (
    Bench,
    SharedBench,
    finishes,
    in_shared_bench,
    is_alive,
    until,
)
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

REPORTING = """
import time
from jupyter_ddl import report
for step in range(100_000):
    report(step=step, score=1.0)
    time.sleep(0.01)
"""
SLEEPING = "import time; time.sleep(600)"
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    time.sleep(1)
"""
FIRST_SLEEPS = """
import time
from pathlib import Path
marker = Path({marker!r})
if not marker.exists():
    marker.touch()
    time.sleep(600)
"""
WAITING = """
import time
from pathlib import Path
while not Path({marker!r}).exists():
    time.sleep(0.01)
"""
UNTIL_TOLD = """
import time
from jupyter_ddl.ranks.stopping import stop_flag
while stop_flag.pending(1, 1) is None:
    time.sleep(0.01)
"""
"""Goes on once its process has heard that trial 1 is to end."""


async def stop(
    bench: Bench,
    assignment: Assignment,
    begun: Callable[[], bool] = lambda: True,
    reason: str = "cancelled",
    when: str = "now",
) -> list[AttemptFinished]:
    """Stop trial 0 once its code has begun what matters, and return how all trials ended."""
    future = bench.submit(assignment)
    await bench.started(assignment)
    await until(begun)
    await bench.control(StopTrial(bench.run_id, 0, 1, reason, when))  # type: ignore[arg-type]
    await bench.result(assignment, future)
    return finishes(bench.events(assignment))


@in_shared_bench
async def test_a_stop_at_the_next_report_ends_the_attempt_with_its_reason(bench: Bench) -> None:
    (end,) = await stop(bench, bench.assignment(REPORTING), reason="pruned", when="next_report")
    assert (end.outcome, end.failure) == ("pruned", None)


@in_shared_bench
async def test_a_stop_now_interrupts_a_sleeping_trial_and_spares_its_process(bench: Bench) -> None:
    marker = bench.path / bench.run_id / "marker"
    assignment = bench.assignment(FIRST_SLEEPS.format(marker=str(marker)), n_trials=3)
    ends = await stop(bench, assignment, marker.exists)
    assert [end.outcome for end in ends] == ["cancelled", "complete", "complete"]
    started = [event for event in bench.events(assignment) if isinstance(event, AttemptStarted)]
    assert len({event.pid for event in started}) == 1


@in_shared_bench
async def test_finally_blocks_of_the_cell_run_when_it_is_stopped_now(bench: Bench) -> None:
    source = "import time\ntry:\n    print('begun')\n    time.sleep(600)\n"
    assignment = bench.assignment(source + "finally:\n    print('tidied up')")
    future = bench.submit(assignment)
    started = await bench.started(assignment)
    await until(lambda: "begun" in bench.log_text(started))
    await bench.control(StopTrial(bench.run_id, 0, 1, "cancelled", "now"))
    await bench.result(assignment, future)
    assert bench.log_text(started) == "begun\ntidied up\n"


@in_shared_bench
async def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(bench: Bench) -> None:
    assignment = bench.assignment(STUBBORN, stop_grace_s=0.5)
    future = bench.submit(assignment)
    started = await bench.started(assignment)
    await until(lambda: "deaf" in bench.log_text(started))
    begun_s = time.monotonic()
    await bench.control(StopTrial(bench.run_id, 0, 1, "pruned", "now"))
    await bench.result(assignment, future)
    (end,) = finishes(bench.events(assignment))
    assert (end.outcome, end.failure) == ("pruned", None)
    assert time.monotonic() - begun_s >= 0.5
    assert not is_alive(started.pid)


@in_shared_bench
async def test_a_stopped_process_is_woken_and_ends(bench: Bench) -> None:
    assignment = bench.assignment(SLEEPING, stop_grace_s=3600.0)
    future = bench.submit(assignment)
    started = await bench.started(assignment)
    os.kill(started.pid, signal.SIGSTOP)
    await bench.control(StopTrial(bench.run_id, 0, 1, "cancelled", "now"))
    await bench.result(assignment, future)
    (end,) = finishes(bench.events(assignment))
    assert end.outcome == "cancelled"


@in_shared_bench
async def test_trials_behind_a_killed_one_are_executed(bench: Bench) -> None:
    marker = bench.path / bench.run_id / "marker"
    source = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    source += FIRST_SLEEPS.format(marker=str(marker))
    assignment = bench.assignment(source, n_trials=3, stop_grace_s=0.3)
    ends = await stop(bench, assignment, marker.exists)
    assert [(end.trial, end.outcome) for end in ends] == [
        (0, "cancelled"),
        (1, "complete"),
        (2, "complete"),
    ]


@in_shared_bench
async def test_a_waiting_trial_can_be_stopped_without_harm_to_the_one_before(
    bench: Bench,
) -> None:
    assignment = bench.assignment(UNTIL_TOLD, n_trials=3)
    future = bench.submit(assignment)
    await bench.started(assignment)
    await bench.control(StopTrial(bench.run_id, 1, 1, "pruned", "now"))
    await bench.result(assignment, future)
    ends = finishes(bench.events(assignment))
    assert [end.outcome for end in ends] == ["complete", "pruned", "complete"]


@in_shared_bench
async def test_stopping_a_run_now_ends_all_its_ranks(bench: Bench) -> None:
    busy = [bench.assignment(SLEEPING, n_trials=3, stop_grace_s=1.0) for _ in range(2)]
    futures = [bench.submit(assignment) for assignment in busy]
    pids = [(await bench.started(assignment)).pid for assignment in busy]
    await bench.control(StopRun(bench.run_id, "now"))
    for assignment, future in zip(busy, futures, strict=True):
        await bench.result(assignment, future)
        ends = finishes(bench.events(assignment))
        assert {end.outcome for end in ends} == {"cancelled"}
    await until(lambda: not any(map(is_alive, pids)))


@in_shared_bench
async def test_an_assignment_behind_the_stop_of_its_run_is_not_begun(bench: Bench) -> None:
    await bench.control(StopRun(bench.run_id))
    assignment = bench.assignment("x = 1")
    result = await bench.result(assignment, bench.submit(assignment))
    assert result.n_chunks == 0


@in_shared_bench
async def test_a_stop_for_another_run_is_no_concern(bench: Bench) -> None:
    stopped = bench.path / bench.run_id / "stopped"
    assignment = bench.assignment(WAITING.format(marker=str(stopped)))
    future = bench.submit(assignment)
    await bench.started(assignment)
    await bench.control(StopTrial("another", 0, 1, "cancelled", "now"))
    await bench.control(StopRun("another"))
    stopped.touch()
    await bench.result(assignment, future)
    assert [end.outcome for end in finishes(bench.events(assignment))] == ["complete"]


@asynccontextmanager
async def without_forks(bench: Bench, assignment: Assignment) -> AsyncIterator[Any]:
    """Zygotes stand still, and the assignment waits for a rank: the future of its result."""

    async def zygotes() -> list[int]:
        return [worker["zygote_pid"] for worker in await bench.describe()]

    async def is_there() -> bool:
        return any(
            assignment.assignment_id in each["assignments"] for each in await bench.describe()
        )

    await bench.execute(bench.assignment("x = 1"))
    await until_told(zygotes, all)
    pids = await zygotes()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        future = bench.submit(assignment)
        await until_told(is_there)
        yield future
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def until_told(
    ask: Callable[[], Awaitable[Any]], is_enough: Callable[[Any], bool] = bool
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_enough(await ask()):  # noqa: ASYNC110 - asked over the network
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["round", "run"])
def test_what_is_stopped_before_there_is_a_rank_ends_without_one(
    shared_bench: SharedBench, kind: str
) -> None:
    async def body(bench: Bench) -> None:
        place = RankPlace("g", 0, 2, 0, 2) if kind == "round" else None
        assignment = bench.assignment(SLEEPING, place=place, fresh_process=True)
        stop_round = StopTrial(bench.run_id, 0, 1, "cancelled", "now", rank=0)
        async with without_forks(bench, assignment) as future:
            await bench.control(stop_round if kind == "round" else StopRun(bench.run_id))
            await bench.result(assignment, future)
        assert not any(
            isinstance(e, AttemptStarted | AttemptFinished) for e in bench.events(assignment)
        )

        async def ranks() -> list[dict[str, Any]]:
            return [rank for rank in await bench.ranks() if rank["is_busy"]]

        await until_told(ranks, lambda seen: not seen)

    shared_bench.run(body)


@in_shared_bench
async def test_a_trial_that_is_stopped_before_there_is_a_rank_ends_as_it_was_told(
    bench: Bench,
) -> None:
    assignment = bench.assignment("y = 2", n_trials=2)
    async with without_forks(bench, assignment) as future:
        await bench.control(StopTrial(bench.run_id, 1, 1, "pruned", "now"))
    await bench.result(assignment, future)
    assert [end.outcome for end in finishes(bench.events(assignment))] == ["complete", "pruned"]
