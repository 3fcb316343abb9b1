"""Who waits for whom in a cell of a persistent group is told once it is sure, and no sooner."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jupyter_ddl.driving.cell_watch import CellWatch
from jupyter_ddl.protocol.cells import RankSeen

_MAIN = '  File "/lib/jupyter_ddl/ranks/main.py", line 150 in execute_all\n'


def _waits(n_runs: int = 0, line: int = 5, cut_off: tuple[str, ...] = ()) -> RankSeen:
    stacks = (
        "Thread 0x7f (most recent call first):\n"
        '  File "/lib/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
        f'  File "In [3]", line {line} in <module>\n{_MAIN}'
    )
    return RankSeen("S", stacks, 0.0, cut_off, n_runs)


def _sleeps() -> RankSeen:
    stacks = f'Thread 0x7f (most recent call first):\n  File "In [3]", line 2 in <module>\n{_MAIN}'
    return RankSeen("S", stacks)


_COMPUTES = RankSeen("R", _sleeps().stacks, 1.0)


def _notice(first: Mapping[int, RankSeen | None], then: Mapping[int, RankSeen | None]) -> str:
    watch = CellWatch(2, (0, 1), 100.0)
    assert watch.due_s == 105.0
    watch.look()
    assert watch.due_s is None
    watch.looked(first, 105.0)
    watch.looked(then, 107.0)
    return watch.notice


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (_sleeps(), "rank 1 makes no progress at line 2; rank 0 waits in all_reduce at line 5"),
        (_COMPUTES, "rank 0 waits in all_reduce at line 5; rank 1 computes at line 2"),
        (
            _waits(line=6),
            "rank 1 waits in all_reduce at line 6; rank 0 waits in all_reduce at line 5: every "
            "rank must make the same calls in the same order",
        ),
        (
            _waits(cut_off=("h2",)),
            "rank 1 waits for h2 at line 5; rank 0 waits in all_reduce at line 5: nothing that it "
            "sends there is acknowledged, the network is cut",
        ),
        (
            None,
            "rank 1 does not answer, nor does its worker; rank 0 waits in all_reduce at line 5",
        ),
    ],
)
def test_who_stands_in_a_collective_is_told_with_the_others(
    other: RankSeen | None, told: str
) -> None:
    seen = {0: _waits(), 1: other}
    assert _notice(seen, seen) == f"after 7 s {told}"


def test_ranks_that_have_ended_the_cell_or_never_got_it_are_named() -> None:
    waits = (
        "after 7 s rank 0 waits in all_reduce at line 5: do all ranks make the same calls, with "
        "tensors of the same size?; "
    )
    assert _notice({0: _waits()}, {0: _waits()}) == f"{waits}rank 1 has ended it"
    watch = CellWatch(3, (0,), 0.0)
    for at_s in (5.0, 7.0):
        watch.looked({0: _waits()}, at_s)
    assert watch.notice == f"{waits}ranks 1-2 do not execute it"


def test_a_rank_that_waits_for_a_moment_of_each_step_is_no_news() -> None:
    assert _notice({0: _waits(10), 1: _sleeps()}, {0: _waits(18), 1: _sleeps()}) == ""
    assert _notice({0: _waits(line=4), 1: _sleeps()}, {0: _waits(), 1: _sleeps()}) == ""
    assert _notice({0: _sleeps(), 1: _sleeps()}, {0: _waits(), 1: _sleeps()}) == ""


def test_ranks_that_wait_for_nobody_are_no_news() -> None:
    for each in (_sleeps(), _COMPUTES):
        assert _notice({0: each, 1: each}, {0: each, 1: each}) == ""


def test_a_stopped_rank_is_told_at_once() -> None:
    watch = CellWatch(2, (0, 1), 0.0)
    watch.looked({0: _sleeps(), 1: RankSeen("T", _sleeps().stacks)}, 5.0)
    assert watch.notice == "after 5 s rank 1 is stopped (SIGSTOP) at line 2; rank 0 makes no " + (
        "progress at line 2"
    )


def test_it_is_looked_at_ever_more_rarely_and_closer_while_nothing_is_sure() -> None:
    watch = CellWatch(2, (0, 1), 0.0)
    dues = []
    for _ in range(6):
        assert watch.due_s is not None
        dues.append(watch.due_s)
        watch.looked({0: _sleeps(), 1: _sleeps()}, watch.due_s)
    assert dues == [5.0, 10.0, 20.0, 40.0, 80.0, 140.0]
    watch.looked({0: _waits(), 1: _sleeps()}, 200.0)
    assert (watch.due_s, watch.notice) == (202.0, "")
    watch.looked({0: _waits(), 1: _sleeps()}, 202.0)
    assert watch.notice
    assert watch.due_s == 262.0
    watch.looked({1: _sleeps()}, 262.0)
    assert watch.notice == ""
