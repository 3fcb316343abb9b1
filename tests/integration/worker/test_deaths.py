"""Ranks that die: the trial that was running fails alone, with the reason."""

from __future__ import annotations

import os
import signal

import pytest

from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Notice
from tests.integration.worker.worker_bench import (
    Bench,
    finishes,
    in_bench,
    in_shared_bench,
    is_alive,
    until,
)

pytestmark = pytest.mark.integration

SECOND = """
import os
from pathlib import Path
turn = Path({turns!r})
with turn.open("a") as file:
    file.write("x")
if turn.stat().st_size == 2:
    {action}
print("survived")
"""


def second(bench: Bench, action: str) -> str:
    """Source whose second trial does something bad."""
    return SECOND.format(turns=str(bench.path / f"{bench.run_id}.turns"), action=action)


@in_shared_bench
async def test_a_segfault_fails_its_own_trial_alone(bench: Bench) -> None:
    source = second(bench, "import ctypes; ctypes.string_at(0)")
    events = await bench.execute(bench.assignment(source, n_trials=4))
    ends = finishes(events)
    assert [(end.trial, end.outcome) for end in ends] == [
        (0, "complete"),
        (1, "failed"),
        (2, "complete"),
        (3, "complete"),
    ]
    failure = ends[1].failure
    assert failure is not None
    assert (failure.kind, failure.type_name, failure.line) == ("crash", "SIGSEGV", 8)
    assert failure.traceback.startswith("Fatal Python error: Segmentation fault")
    assert 'File "In [1]", line 8' in failure.traceback
    assert "ranks/main.py" not in failure.traceback
    starts = [event for event in events if isinstance(event, AttemptStarted)]
    assert [start.trial for start in starts] == [0, 1, 2, 3]
    assert starts[1].pid != starts[2].pid


@in_shared_bench
async def test_an_exit_behind_our_back_is_a_crash_with_its_code(bench: Bench) -> None:
    events = await bench.execute(bench.assignment(second(bench, "os._exit(3)"), n_trials=3))
    ends = finishes(events)
    assert [end.outcome for end in ends] == ["complete", "failed", "complete"]
    assert ends[1].failure is not None
    assert (ends[1].failure.kind, ends[1].failure.type_name) == ("crash", "exit code 3")


@in_shared_bench
async def test_a_foreign_sigkill_is_told_as_such(bench: Bench) -> None:
    source = second(bench, "os.kill(os.getpid(), 9)")
    end = finishes(await bench.execute(bench.assignment(source, n_trials=2)))[1]
    assert end.failure is not None
    assert (end.failure.kind, end.failure.type_name) == ("crash", "SIGKILL")
    assert "out-of-memory" in end.failure.message


@in_shared_bench
async def test_a_foreign_sigterm_kills_the_rank(bench: Bench) -> None:
    assignment = bench.assignment("import time; time.sleep(600)")
    future = bench.submit(assignment)
    started = await bench.started(assignment)
    os.kill(started.pid, signal.SIGTERM)
    await bench.result(assignment, future)
    (end,) = finishes(bench.events(assignment))
    assert end.failure is not None
    assert (end.failure.kind, end.failure.type_name) == ("crash", "SIGTERM")


@in_shared_bench
async def test_what_a_rank_leaves_in_other_sessions_ends_with_it(bench: Bench) -> None:
    source = """
import os, subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
forked = os.fork()
if forked == 0:
    os.setsid()
    os.execvp("sleep", ["sleep", "600"])
print(child.pid, forked, flush=True)
os._exit(0)
"""
    assignment = bench.assignment(source)
    events = await bench.execute(assignment)
    pids = [int(pid) for pid in bench.log_text(events[0]).split()]
    assert len(pids) == 2
    await until(lambda: not any(map(is_alive, pids)))


@in_shared_bench
async def test_a_forked_child_neither_speaks_for_the_rank_nor_outlives_it(bench: Bench) -> None:
    source = """
import os
from jupyter_ddl import report
child = os.fork()
if child == 0:
    try:
        report(step=0, score=1.0)
    except Exception:
        print("refused", flush=True)
else:
    os.waitpid(child, 0)
    report(step=0, score=2.0)
"""
    events = await bench.execute(bench.assignment(source, n_trials=2, metric="score"))
    assert [end.value for end in finishes(events)] == [2.0, 2.0]
    assert bench.log_text(events[0]).count("refused") == 2


@in_shared_bench
async def test_multiprocessing_pools_work_in_a_trial(bench: Bench) -> None:
    """Each ends its processes by a SIGTERM, which may come before they have begun."""
    source = """
import multiprocessing as mp
from jupyter_ddl import report
for step in range(60):
    with mp.get_context("fork").Pool(2) as pool:
        report(step=step, score=float(sum(pool.map(abs, [-1, -2]))))
"""
    events = await bench.execute(bench.assignment(source, n_trials=2, metric="score"))
    assert [(end.outcome, end.value) for end in finishes(events)] == [("complete", 3.0)] * 2


@in_shared_bench
async def test_a_closed_channel_is_a_crash_with_an_explanation(bench: Bench) -> None:
    source = """
import os
from jupyter_ddl import report
os.closerange(3, 100)
report(step=0, score=1.0)
"""
    (end,) = finishes(await bench.execute(bench.assignment(source)))
    assert end.failure is not None
    assert "file descriptors" in end.failure.message


@in_shared_bench
async def test_a_message_that_is_none_ends_the_rank(bench: Bench) -> None:
    source = """
import os, socket, time
for fd in range(3, 100):
    try:
        socket.socket(fileno=os.dup(fd)).sendall(bytes([0, 0, 0, 2, 255, 255]))
    except OSError:
        pass
time.sleep(600)
"""
    (end,) = finishes(await bench.execute(bench.assignment(source)))
    assert (end.outcome, end.failure and end.failure.kind) == ("failed", "crash")
    assert end.failure is not None
    assert "not a message" in end.failure.message


@in_bench()
async def test_a_killed_zygote_evicts_and_is_replaced(bench: Bench) -> None:
    assignment = bench.assignment(second(bench, "__import__('time').sleep(600)"), n_trials=3)
    future = bench.submit(assignment)
    started = await bench.started(assignment, trial=1)
    zygote = (await bench.describe())[0]["zygote_pid"]
    os.kill(zygote, signal.SIGKILL)
    await bench.result(assignment, future)
    events = bench.events(assignment)
    assert [(end.trial, end.outcome) for end in finishes(events)] == [
        (0, "complete"),
        (1, "evicted"),
        (2, "complete"),
    ]
    assert any(isinstance(event, Notice) and "zygote" in event.text for event in events)
    assert not is_alive(started.pid)
    assert (await bench.describe())[0]["zygote_pid"] != zygote


@in_bench(rank_memory_bytes=200 << 20)
async def test_a_rank_over_its_memory_limit_is_ended_with_the_numbers(bench: Bench) -> None:
    source = second(
        bench, "x = bytearray(os.urandom(1) * (400 << 20)); import time; time.sleep(60)"
    )
    ends = finishes(await bench.execute(bench.assignment(source, n_trials=3)))
    assert [end.outcome for end in ends] == ["complete", "failed", "complete"]
    failure = ends[1].failure
    assert failure is not None
    assert failure.kind == "memory"
    assert "over the limit of 200 MiB of a slot; use less memory" in failure.message
    assert "or start the cluster with a larger --memory" in failure.message


@in_bench(prewarm=("json.tool", "no_such_package"))
async def test_a_package_that_does_not_import_is_a_notice(bench: Bench) -> None:
    source = "import sys; print('json.tool' in sys.modules)"
    events = await bench.execute(bench.assignment(source))
    events += await bench.execute(bench.assignment(source))
    (notice,) = (event for event in events if isinstance(event, Notice))
    assert "no_such_package can't be imported ahead of the ranks" in notice.text
    (end,) = (event for event in events[:3] if isinstance(event, AttemptFinished))
    assert end.outcome == "complete"
