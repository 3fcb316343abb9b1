"""Who hangs, by process states, CPU time and stacks; and when it is time to look."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_ddl.driving.hangs import Place, Sight, StepWatch, judge, read_place, whereabouts
from jupyter_ddl.protocol.events import AttemptFinished, Beat, Probe, Reported

MAIN = """
  File "/site/jupyter_ddl/worker/program.py", line 230 in _run_cell
  File "/site/jupyter_ddl/ranks/main.py", line 151 in _execute
  File "/site/jupyter_ddl/ranks/main.py", line 130 in execute_all
  File "/site/jupyter_ddl/ranks/main.py", line 66 in run
"""
HEAD = "Current thread 0x00007f5d5f5f6740 (most recent call first):\n"
OTHER = """Thread 0x00007f5d4b7fe6c0 [ddl-control] (most recent call first):
  File "/site/jupyter_ddl/worker/frames.py", line 110 in receive

"""
CELL = '  File "In [3]", line {line} in <module>'
COLLECTIVE = """  File "/site/torch/distributed/distributed_c10d.py", line 2999 in {name}
  File "/site/torch/distributed/c10d_logger.py", line 81 in wrapper
"""
BACKWARD = """  File "/site/torch/autograd/graph.py", line 865 in _engine_run_backward
  File "/site/torch/_tensor.py", line 625 in backward
"""


def stacks(line: int, above: str = "") -> str:
    return OTHER + HEAD + above + CELL.format(line=line) + MAIN


def waits(name: str, line: int, state: str = "S", cpu: float = 0.0) -> Probe:
    return Probe(0, 1, state, cpu, stacks(line, COLLECTIVE.format(name=name)))


def sight(rank: int, probe: Probe | None, n_steps: int = 5, phase: str = "cell") -> Sight:
    return Sight(rank, phase, n_steps, probe)


def test_the_innermost_line_of_the_cell_is_read_from_the_main_thread() -> None:
    assert read_place(stacks(7)) == Place(7)


def test_the_collective_is_named_without_its_wrappers() -> None:
    text = stacks(9, COLLECTIVE.format(name="all_reduce"))
    assert read_place(text) == Place(9, "all_reduce", "all_reduce")


def test_a_backward_pass_is_a_collective_of_its_own() -> None:
    assert read_place(stacks(4, BACKWARD)).waits_in == "backward"


def test_no_stacks_tell_nothing() -> None:
    assert read_place("") == Place()


def test_a_stopped_rank_is_to_blame_and_the_others_are_told_together() -> None:
    ranks = [
        sight(0, waits("all_reduce", 9)),
        sight(1, Probe(0, 1, "T", 0.0, stacks(7))),
        sight(2, waits("all_reduce", 9)),
    ]
    blame = judge(ranks, 60.0, 60.0)
    assert blame is not None
    assert (blame.rank, blame.line) == (1, 7)
    assert blame.text == (
        "rank 1 is stopped (SIGSTOP) at line 7; ranks 0, 2 wait in all_reduce at line 9"
    )


def test_a_rank_that_computes_is_not_to_blame_for_long() -> None:
    ranks = [sight(0, waits("all_reduce", 9)), sight(1, Probe(0, 1, "R", 1.0, stacks(7)))]
    assert judge(ranks, 60.0, 60.0) is None
    assert judge(ranks, 19 * 60.0, 60.0) is None
    blame = judge(ranks, 21 * 60.0, 60.0)
    assert blame is not None
    assert blame.text.startswith("rank 1 has computed for 1260 s without a step at line 7")


def computes(rank: int, n_steps: int = 0, phase: str = "cell") -> Sight:
    return sight(rank, Probe(0, 1, "R", 1.0, stacks(7)), n_steps, phase)


def test_a_cell_that_never_made_a_step_may_compute_for_ever() -> None:
    assert judge([computes(0), computes(1)], 1e6, 60.0, is_given=False) is None


def test_a_rank_that_waits_for_a_cpu_computes() -> None:
    starved = sight(1, Probe(0, 1, "R", 0.05, stacks(7)))
    assert judge([sight(0, waits("all_reduce", 9)), starved], 60.0, 60.0) is None


def test_who_says_how_long_a_step_may_take_has_endless_loops_ended() -> None:
    ranks = [computes(0), computes(1)]
    assert judge(ranks, 19 * 60.0, 60.0) is None
    blame = judge(ranks, 20 * 60.0, 60.0)
    assert blame is not None
    assert blame.text == (
        "rank 0 has computed for 1200 s without a step at line 7; rank 1 computes at line 7"
    )


@pytest.mark.parametrize(
    "other",
    [
        sight(0, waits("all_reduce", 9), n_steps=0),
        sight(0, Probe(0, 1, "S", 0.0, ""), 0, "rendezvous"),
    ],
)
@pytest.mark.parametrize("phase", ["cell", "loading"])
def test_a_loop_before_the_first_step_is_to_blame_where_others_wait_for_it(
    other: Sight, phase: str
) -> None:
    ranks = [other, computes(1, phase=phase)]
    assert judge(ranks, 19 * 60.0, 60.0, is_given=False) is None
    blame = judge(ranks, 20 * 60.0, 60.0, is_given=False)
    assert blame is not None
    assert blame.rank == 1


def test_waiting_on_a_gpu_is_no_computing() -> None:
    ranks = [
        sight(0, waits("all_reduce", 9, "R", 1.0)),
        sight(1, Probe(0, 1, "S", 0.0, stacks(7))),
    ]
    blame = judge(ranks, 60.0, 60.0)
    assert blame is not None
    assert blame.text == (
        "rank 1 makes no progress at line 7; rank 0 waits in all_reduce at line 9"
    )


def test_unequal_collectives_blame_the_rank_that_waits_elsewhere() -> None:
    ranks = [
        sight(0, waits("barrier", 9)),
        sight(1, waits("all_reduce", 8)),
        sight(2, waits("barrier", 9)),
    ]
    blame = judge(ranks, 60.0, 60.0)
    assert blame is not None
    assert (blame.rank, blame.line) == (1, 8)
    assert blame.text == (
        "rank 1 waits in all_reduce at line 8; ranks 0, 2 wait in barrier at line 9: "
        "every rank must make the same calls in the same order"
    )


def test_where_all_wait_at_one_line_the_rank_behind_is_to_blame() -> None:
    ranks = [sight(0, waits("all_reduce", 8), 6), sight(1, waits("all_reduce", 8), 5)]
    blame = judge(ranks, 60.0, 60.0)
    assert blame is not None
    assert blame.rank == 1
    assert "do all ranks make the same calls" in blame.text


def test_a_rank_that_never_came_to_the_rendezvous_is_named() -> None:
    probe = Probe(0, 1, "S", 0.0, "")
    ranks = [sight(0, probe, 0, "rendezvous"), sight(1, probe, 0, "loading")]
    blame = judge(ranks, 60.0, 60.0)
    assert blame is not None
    assert blame.text == "rank 1 is still at its loading; rank 0 is at its rendezvous"


def test_a_worker_that_does_not_answer_is_told_of() -> None:
    blame = judge([sight(0, waits("barrier", 2)), sight(1, None)], 60.0, 60.0)
    assert blame is not None
    assert blame.text.startswith("rank 1 does not answer")
    assert blame.is_outside


@pytest.mark.parametrize("phase", ["cell", "rendezvous"])
def test_a_host_that_acknowledges_nothing_is_named_and_no_rank_is_to_blame(phase: str) -> None:
    cut = msgspec.structs.replace(waits("all_reduce", 9), cut_off=("10.0.0.2",))
    blame = judge([sight(0, cut, phase=phase), sight(1, waits("barrier", 4))], 60.0, 60.0)
    assert blame is not None
    assert blame.is_outside
    assert blame.text.startswith("rank 0 waits for 10.0.0.2 at line 9; rank 1 waits in barrier")
    assert blame.text.endswith("nothing that it sends there is acknowledged, the network is cut")


def test_a_rank_that_computes_or_is_stopped_is_not_excused_by_the_network() -> None:
    cut = msgspec.structs.replace(waits("all_reduce", 9), cut_off=("10.0.0.2",))
    stopped = judge([sight(0, cut), sight(1, waits("barrier", 4, state="T"))], 60.0, 60.0)
    assert stopped is not None
    assert (stopped.rank, stopped.is_outside) == (1, False)
    assert judge([sight(0, cut), computes(1)], 60.0, 60.0) is None


def beat(n_steps: int, phase: str = "cell") -> Beat:
    return Beat(0, 1, phase, n_steps, 0.0)  # type: ignore[arg-type]


def in_cell(watch: StepWatch, n_ranks: int, now_s: float = 0.0) -> None:
    for rank in range(n_ranks):
        watch.observe(rank, beat(0), now_s)


def test_the_timeout_counts_from_the_last_step_of_any_rank() -> None:
    watch = StepWatch(2, 5.0, 0.0)
    in_cell(watch, 2)
    watch.observe(1, beat(1), 3.0)
    assert not watch.is_due(7.9)
    assert watch.is_due(8.0)
    watch.observe(0, Reported(0, 1, 0, {}, 0.0), 8.5)
    assert not watch.is_due(13.0)


def test_slow_steps_raise_the_default_timeout() -> None:
    watch = StepWatch(1, None, 0.0)
    in_cell(watch, 1)
    assert watch.timeout_s == 300.0
    for number in range(1, 4):
        watch.observe(0, beat(number), 20.0 * number)
    assert watch.timeout_s == pytest.approx(200.0)


def test_fast_steps_keep_it_at_a_minute() -> None:
    watch = StepWatch(1, None, 0.0)
    in_cell(watch, 1)
    for second in range(1, 9):
        watch.observe(0, beat(50 * second), float(second))
    assert watch.timeout_s == 60.0


def test_loading_and_rendezvous_have_a_minute_whatever_was_asked_for() -> None:
    watch = StepWatch(2, 3.0, 0.0)
    assert not watch.is_due(59.0)
    assert watch.is_due(60.0)


def test_a_step_during_the_look_saves_the_ranks_unless_one_is_stopped() -> None:
    for state, saved in (("S", True), ("T", False)):
        watch = StepWatch(1, 5.0, 0.0)
        in_cell(watch, 1)
        assert watch.is_due(5.0)
        watch.observe(0, beat(1), 5.5)
        blame = watch.judge({0: Probe(0, 1, state, 0.0, stacks(3))}, 6.0)
        assert (blame is None) == saved


def test_a_computing_rank_is_looked_at_again_later() -> None:
    watch = StepWatch(1, 10.0, 0.0)
    in_cell(watch, 1)
    assert watch.judge({0: Probe(0, 1, "R", 1.0, stacks(3))}, 10.0) is None
    assert not watch.is_due(14.0)
    assert watch.is_due(16.0)


def test_ranks_that_have_ended_are_no_longer_watched() -> None:
    watch = StepWatch(1, 5.0, 0.0)
    in_cell(watch, 1)
    watch.observe(0, AttemptFinished(0, 1, "complete", 1.0, 1.0), 1.0)
    assert not watch.is_due(100.0)


@pytest.mark.parametrize(
    ("phases", "text"),
    [
        ({0: "rendezvous", 1: "loading", 2: "rendezvous"}, "rank 1 is still loading what it needs "
         "after 15 s; ranks 0, 2 wait for that"),
        ({0: "cell", 1: "cell", 2: "rendezvous"}, "rank 2 still meets the others after 15 s"),
        ({1: "rendezvous"}, "ranks 0, 2 are still not begun by a worker after 15 s; rank 1 waits "
         "for that"),
        ({0: "rendezvous", 1: "rendezvous", 2: "rendezvous"}, "ranks 0-2 still meet after 15 s"),
        ({0: "cell", 1: "cell", 2: "cell"}, ""),
    ],
)  # fmt: skip
def test_ranks_that_have_not_come_to_the_cell_are_told_once(
    phases: dict[int, str], text: str
) -> None:
    watch = StepWatch(3, None, 100.0)
    for rank, phase in phases.items():
        watch.observe(rank, Beat(0, 1, phase, 0, 0.0), 101.0)  # type: ignore[arg-type]
    assert not watch.is_late(114.9)
    assert watch.late_due_s == 115.0
    assert watch.is_late(115.0)
    assert (watch.is_late(200.0), watch.late_due_s) == (False, None)
    assert (watch.absent({}), watch.are_in_cell) == (text, not text)
    watch.look_again(131.0)
    assert watch.late_due_s == 160.0
    assert watch.absent({}) == text.replace("15 s", "60 s")


IMPORTING = """Current thread 0x7f (most recent call first):
  File "<frozen importlib._bootstrap>", line 1 in _call_with_frames_removed
  File "/lib/slow.py", line 7 in <module>
  File "/lib/torch/__init__.py", line 9 in <module>
  File "/lib/jupyter_ddl/ranks/zygote.py", line 130 in serve
"""


def test_where_late_ranks_are_is_told_once_for_each_place() -> None:
    assert whereabouts("S", IMPORTING, "h2") == "at line 7 of /lib/slow.py on h2"
    assert whereabouts("T", IMPORTING, "h2") == "stopped on h2"
    assert whereabouts("S", "", "h2") == "on h2"
    watch = StepWatch(3, None, 100.0)
    watch.observe(0, beat(0, "rendezvous"), 101.0)
    assert watch.absent({1: "at line 7 of slow.py on h2", 2: "at line 7 of slow.py on h2"}) == (
        "ranks 1-2 are still loading what they need after 15 s "
        "(ranks 1-2 at line 7 of slow.py on h2); rank 0 waits for that"
    )
    for rank in (1, 2):
        watch.observe(rank, beat(0, "rendezvous"), 102.0)
    assert watch.absent({0: "on h1", 1: "stopped on h2", 2: "on h1"}) == (
        "ranks 0-2 still meet after 15 s (ranks 0, 2 on h1; rank 1 stopped on h2)"
    )


def test_who_waits_before_the_first_step_is_told_with_lines() -> None:
    watch = StepWatch(2, None, 100.0)
    for rank in range(2):
        watch.observe(rank, Beat(0, 1, "cell", 0, 0.0), 101.0)
    idle = Probe(0, 1, "S", 0.0, stacks(7))
    assert watch.who_waits({0: waits("barrier", 9), 1: idle}) == (
        "no step after 15 s: rank 0 waits in barrier at line 9; rank 1 makes no progress at line 7"
    )
    assert watch.who_waits({0: waits("all_reduce", 9), 1: waits("all_reduce", 9)}) == ""
    assert watch.who_waits({0: waits("all_reduce", 9), 1: Probe(0, 1, "R", 1.0, stacks(7))}) == ""
    assert watch.who_waits({0: waits("all_reduce", 9)}) == "", "the other was not seen"
    watch.observe(1, Beat(0, 1, "cell", 1, 0.0), 102.0)
    assert not watch.is_late(115.0)
    assert watch.who_waits({0: waits("all_reduce", 9), 1: idle}) == ""
