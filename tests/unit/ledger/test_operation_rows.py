"""Traces of several ranks as one table: merged by name, on the average of all recorded steps."""

from __future__ import annotations

import pytest

from jupyter_ddl.ledger.profiles import operation_rows, trace_rows
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import Operation, ProfileTaken


def taken(rank: int, n_steps: int, *operations: Operation) -> ProfileTaken:
    return ProfileTaken(
        trial=0,
        attempt=1,
        rank=rank,
        at_s=1.0,
        n_steps=n_steps,
        file=f"trial-0-a1-r{rank}.json.gz",
        size_bytes=10 + rank,
        cpu_s=0.1,
        device_s=sum(each.device_s for each in operations),
        operations=operations,
    )


def state_of(*profiles: ProfileTaken) -> RunState:
    return RunState(profiles={(each.trial, each.rank): each for each in profiles})


def test_operations_of_all_ranks_are_averaged_over_all_their_steps() -> None:
    mm = "aten::mm"
    state = state_of(
        taken(1, 1, Operation("aten::add", 3, 0.02, 0.0)),
        taken(0, 3, Operation(mm, 8, 0.05, 0.0), Operation("aten::add", 1, 0.02, 0.0)),
    )
    first, second = operation_rows(state)
    assert (first.name, first.n_calls) == (mm, 2.0)
    assert (first.share, first.cpu_s) == (pytest.approx(0.25), pytest.approx(0.0125))
    assert (second.name, second.n_calls, second.cpu_s) == ("aten::add", 1.0, pytest.approx(0.01))
    assert [(row.rank, row.size_bytes) for row in trace_rows(state)] == [(0, 10), (1, 11)]


def test_times_on_a_gpu_lead_and_long_names_are_cut() -> None:
    name = "kernel" * 40
    rows = operation_rows(
        state_of(taken(0, 1, Operation("host", 1, 0.09, 0.0), Operation(name, 1, 0.001, 0.5)))
    )
    assert [len(row.name) for row in rows] == [80, 4]
    assert [row.share for row in rows] == [1.0, 0.0]


def test_nothing_recorded_is_no_row() -> None:
    assert operation_rows(RunState()) == ()
    assert trace_rows(RunState()) == ()
    assert operation_rows(state_of(taken(0, 0))) == ()
