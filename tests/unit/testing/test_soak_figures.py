"""What a soak counts as a recovery's CPU time, and which runs it still looks at."""

from __future__ import annotations

import math

import pytest

from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import Notice, RunFinished
from jupyter_ddl.store.paths import ledger_path
from tests.soak.cpu import CpuUse
from tests.soak.figures import Kill, nearly_all, rows_of
from tests.soak.records import Records
from tests.unit.recorded_runs import record_search


class _Process:
    """One that has used so many seconds, and its children, as ``psutil`` tells it."""

    def __init__(self, pid: int, parent: int, own_s: float, children_s: float = 0.0) -> None:
        self.pid = pid
        self._parent = parent
        self._times = (own_s, 0.0, children_s, 0.0)

    def ppid(self) -> int:
        return self._parent

    def cpu_times(self) -> tuple[float, ...]:
        return self._times


def _spent_s(before: list[_Process], now: list[_Process]) -> float:
    return CpuUse(before).spent_s(now)  # type: ignore[arg-type]


def test_what_goes_on_and_what_is_new_counts() -> None:
    assert _spent_s([_Process(1, 0, 5.0)], [_Process(1, 0, 6.0), _Process(2, 1, 3.0)]) == 4.0


def test_what_a_killed_process_had_used_before_is_not_taken_for_new_in_its_parent() -> None:
    before = [_Process(1, 0, 5.0), _Process(2, 1, 7.0)]
    assert _spent_s(before, [_Process(1, 0, 5.5, children_s=7.0)]) == pytest.approx(0.5)


def test_what_went_with_its_parent_hides_nothing_that_is_new() -> None:
    before = [_Process(1, 0, 5.0), _Process(2, 1, 7.0)]
    assert _spent_s(before, [_Process(3, 0, 2.0)]) == 2.0


def test_a_table_has_a_line_for_each_kind_that_was_killed() -> None:
    kills = [Kill("rank", 1, 0.0, [], [], frozenset(), took, 1.0) for took in (1.0, 2.0, 9.0)]
    kills += [Kill("worker", 1, 0.0, [], [], frozenset(), 3.0)]  # one of several at once
    _, _, rank, worker, both = rows_of(kills, ("kernel", "rank", "worker"))
    assert rank == "| rank | 3 | 2.00 s | 9.00 s | 9.00 s | 1.0, 1.0 s |"
    assert worker == "| worker | 1 | 3.00 s | 3.00 s | 3.00 s | nan, nan s |"
    assert both.startswith("| all | 4 | 2.50 s | 9.00 s |")
    assert math.isnan(nearly_all([]))


@pytest.mark.usefixtures("home")
def test_a_run_that_is_over_is_looked_at_no_more_and_one_that_goes_on_is() -> None:
    record_search("over")
    record_search("on", [], ends=False)
    records = Records()
    records.poll()
    assert [run.run_id for run in records.unfinished()] == ["on"]
    n_seen = {run_id: len(run.events) for run_id, run in records.runs.items()}
    for run_id, event in (("over", Notice(1.0, "late")), ("on", RunFinished(2.0, "complete"))):
        with LedgerWriter.open(ledger_path(run_id)) as ledger:
            ledger.append([event])
    records.poll()
    records.poll()
    assert {run_id: len(run.events) for run_id, run in records.runs.items()} == {
        "over": n_seen["over"],
        "on": n_seen["on"] + 1,
    }
    assert records.unfinished() == []
