"""Assignments that go well: events are complete, in order, and output is on disk."""

from __future__ import annotations

import time

import msgspec
import pytest

from jupyter_ddl.protocol.assignment import StopRun
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Reported
from jupyter_ddl.worker import plugin as plugin_calls
from tests.integration.worker.worker_bench import Bench, finishes, in_shared_bench, is_alive, until

pytestmark = pytest.mark.integration

REPORTING = """
from jupyter_ddl import report
for step in range(3):
    report(step=step, score=float(step))
"""


@in_shared_bench
async def test_events_arrive_complete_and_in_order(bench: Bench) -> None:
    events = await bench.execute(bench.assignment(REPORTING, n_trials=4, metric="score"))
    kinds = [type(event) for event in events]
    assert kinds == [AttemptStarted, Reported, Reported, Reported, AttemptFinished] * 4
    assert [event.trial for event in events] == [n for n in range(4) for _ in range(5)]
    assert [(end.outcome, end.value) for end in finishes(events)] == [("complete", 2.0)] * 4


@in_shared_bench
async def test_assignments_of_a_run_reuse_one_process(bench: Bench) -> None:
    worker = await bench.a_worker()
    first = await bench.execute(bench.assignment("x = 1", n_trials=2), worker)
    second = await bench.execute(bench.assignment("x = 1"), worker)
    other = bench.assignment("x = 1", run_id=f"{bench.run_id}-other")
    third = await bench.execute(other, worker)
    assert first[0].pid == first[2].pid == second[0].pid
    assert third[0].pid != first[0].pid


@in_shared_bench
async def test_a_fresh_process_is_forked_for_every_trial_when_asked(bench: Bench) -> None:
    events = await bench.execute(bench.assignment("x = 1", n_trials=3, fresh_process=True))
    started = [event for event in events if isinstance(event, AttemptStarted)]
    assert len({event.pid for event in started}) == 3
    assert len({event.log for event in started}) == 3
    assert [end.outcome for end in finishes(events)] == ["complete"] * 3


@in_shared_bench
async def test_five_megabytes_of_output_are_complete_on_disk(bench: Bench) -> None:
    source = """
import os, sys
for n in range(50_000):
    print(f"{n:08d} " + "x" * 90)
os.write(2, b"from the file descriptor")
sys.stderr.write("the end")
"""
    events = await bench.execute(bench.assignment(source))
    started, finished = events[0], finishes(events)[0]
    text = bench.log_text(started)[started.log_start : finished.log_end]
    lines = text.splitlines()
    assert [line[:8] for line in lines[:-1]] == [f"{n:08d}" for n in range(50_000)]
    assert lines[-1] == "from the file descriptorthe end"


@in_shared_bench
async def test_each_attempt_knows_its_part_of_the_log(bench: Bench) -> None:
    source = "import ctypes; print('python'); ctypes.CDLL(None).puts(b'from C')"
    events = await bench.execute(bench.assignment(source, n_trials=2))
    first, second = (event for event in events if isinstance(event, AttemptStarted))
    ends = [end.log_end for end in finishes(events)]
    text = bench.log_text(first)
    assert text[first.log_start : ends[0]] == "python\nfrom C\n"
    assert text[second.log_start : ends[1]] == "python\nfrom C\n"
    assert bench.log_path(first).stat().st_mode & 0o777 == 0o600


@in_shared_bench
async def test_streams_that_a_trial_closes_are_whole_again_for_the_next(bench: Bench) -> None:
    source = "import os, sys; print('seen', flush=True); sys.stdout.close(); os.close(1)"
    events = await bench.execute(bench.assignment(source, n_trials=2))
    assert [end.outcome for end in finishes(events)] == ["complete"] * 2
    assert bench.log_text(events[0]).count("seen") == 2


@in_shared_bench
async def test_chunks_can_be_asked_for_again(bench: Bench) -> None:
    assignment = bench.assignment(REPORTING, n_trials=3)
    result = await bench.result(assignment, bench.submit(assignment))
    again = await bench.client.run(plugin_calls.replay, assignment.assignment_id, 0)
    (chunks,) = filter(None, again.values())
    assert len(chunks) == result.n_chunks
    assert b"attempt_finished" in chunks[-1]


@in_shared_bench
async def test_an_assignment_that_comes_twice_is_executed_once(bench: Bench) -> None:
    assignment = bench.assignment("import time; time.sleep(0.3)")
    worker = await bench.a_worker()
    payload = msgspec.msgpack.encode(assignment)
    futures = [
        bench.client.submit(plugin_calls.execute_assignment, payload, key=key, workers=[worker])
        for key in (f"{assignment.assignment_id}-{n}" for n in range(3))
    ]
    results = [await bench.result(assignment, future) for future in futures]
    assert len({result.n_chunks for result in results}) == 1
    assert len(finishes(bench.events(assignment))) == 1


@in_shared_bench
async def test_a_long_report_stream_is_slowed_down_and_complete(bench: Bench) -> None:
    source = """
from jupyter_ddl import report
for step in range(20_000):
    report(step=step, score=1.0)
"""
    events = await bench.execute(bench.assignment(source))
    assert [e.step for e in events if isinstance(e, Reported)] == list(range(20_000))


@in_shared_bench
async def test_a_missing_program_evicts_the_trials_with_a_reason(bench: Bench) -> None:
    assignment = bench.assignment("x = 1", n_trials=2, program="0" * 64)
    ends = finishes(await bench.execute(assignment))
    assert [end.outcome for end in ends] == ["evicted"] * 2
    assert ends[0].failure is not None
    assert "blob" in ends[0].failure.message


@in_shared_bench
async def test_idle_ranks_end_with_their_run(bench: Bench) -> None:
    await bench.execute(bench.assignment("x = 1"))
    (rank,) = await bench.ranks()
    assert not rank["is_busy"]
    await bench.control(StopRun(bench.run_id))
    await until(lambda: not is_alive(rank["pid"]))


@in_shared_bench
async def test_a_thousand_empty_trials_per_second_are_in_reach(bench: Bench) -> None:
    warm = [bench.assignment("x = 1", run_id="warm") for _ in range(4)]
    for assignment in warm:
        await bench.execute(assignment)
    assignments = [bench.assignment("x = 1", n_trials=50) for _ in range(20)]
    begun_s = time.monotonic()
    futures = [bench.submit(assignment) for assignment in assignments]
    for assignment, future in zip(assignments, futures, strict=True):
        await bench.result(assignment, future)
    took_s = time.monotonic() - begun_s
    print(f"\n1000 empty trials in batches of 50 on 2 workers: {1000 / took_s:.0f} per second")
    ends = [end for assignment in assignments for end in finishes(bench.events(assignment))]
    assert len(ends) == 1000
    assert {end.outcome for end in ends} == {"complete"}


@in_shared_bench
async def test_the_zygote_imports_what_an_assignment_needs_before_it_forks(bench: Bench) -> None:
    source = "import sys; print('json.tool' in sys.modules)"
    for warm, there in (((), "False\n"), (("json.tool",), "True\n")):
        assignment = bench.assignment(source, warm=warm, fresh_process=True)
        events = await bench.execute(assignment)
        (start,) = (event for event in events if isinstance(event, AttemptStarted))
        assert bench.log_text(start) == there
