"""The machine of persistent groups: one thing at a time, then everything in random order."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl.driving.cell_groups import CellGroups
from jupyter_ddl.driving.group_events import (
    AllCloseWanted,
    AskGpus,
    Call,
    CellWanted,
    CloseRecord,
    CloseWanted,
    Forget,
    GpusKnown,
    InterruptWanted,
    OpenRecord,
    OpenWanted,
    RankAnswered,
    RankSilent,
    RecordCell,
    RecordClosed,
    RecordOpened,
    RecordRefused,
)
from jupyter_ddl.driving.machine import (
    IllegalTransitionError,
    Now,
    Refuse,
    Reply,
    WaitUntil,
    WakeOthers,
    Woken,
)
from jupyter_ddl.errors import GroupLostError, LaunchError, PlacementError, SpecError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.cells import (
    Cell,
    CellDone,
    CloseRank,
    Done,
    InterruptRank,
    JoinRank,
    LookAtRank,
    OpenRank,
    RankAddress,
    RankCall,
    RankGone,
    RankReady,
    RankSeen,
    RejoinRank,
    RunCell,
    WatchRank,
)
from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.testing.group_world import group_story
from jupyter_ddl.verbs.run import CellGroup

CELL = Cell("1", "In [1]")


class Groups:
    """A machine whose instructions are carried out by the test, one by one."""

    def __init__(self, n_slots: int = 2) -> None:
        self.slots = SlotBook()
        self.slots.set_workers({"w1": n_slots})
        self.machine = CellGroups(self.slots, ("/shm",), lambda _: "h1", lambda: "token")
        self.now_s = 100.0
        self.wakes_at_s: float | None = None
        self.calls: dict[int, Call] = {}
        self.replies: dict[int, Any] = {}
        self.records: list[Any] = []
        self.n_free = 0
        self._n_requests = 0
        self._n_groups = 0

    def feed(self, event: Any) -> None:
        for each in self.machine.handle(event, Now(self.now_s, 1000.0 + self.now_s)):
            match each:
                case Call(call=call):
                    self.calls[call] = each
                case Forget(calls=calls):
                    for call in calls:
                        del self.calls[call]
                case Reply(request=request, result=result):
                    assert request not in self.replies
                    self.replies[request] = result
                case Refuse(request=request, error=error):
                    assert request not in self.replies
                    self.replies[request] = error
                case WaitUntil(at_s=at_s):
                    self.wakes_at_s = at_s
                case WakeOthers():
                    self.n_free += 1
                case AskGpus() | OpenRecord() | RecordCell() | CloseRecord():
                    self.records.append(each)

    def ask(self, kind: Any, *args: Any) -> int:
        self._n_requests += 1
        self.feed(kind(self._n_requests, *args))
        return self._n_requests

    def ask_open(self, n_ranks: int | None = 2, reset: bool = False) -> int:
        self._n_groups += 1
        verb = CellGroup(n_ranks=n_ranks, gpus_per_rank=0)
        spec = RunSpec(f"g{self._n_groups}", verb, Program("", ""), 0, "local", 0.0)
        return self.ask(OpenWanted, spec, reset)

    def open(self, n_ranks: int = 2) -> str:
        """A group that is open; returns its id."""
        request = self.ask_open(n_ranks)
        group_id = f"g{self._n_groups}"
        self.feed(GpusKnown(group_id))
        self.feed(RecordOpened(group_id, "/runs/g"))
        self.answer(OpenRank, RankAddress("h1", 1, 7))
        for rank in range(n_ranks):
            self.answer_one(JoinRank, rank, RankReady(rank))
        assert self.replies[request].is_new
        return group_id

    def of(self, kind: type) -> list[Call]:
        return [call for call in self.calls.values() if isinstance(call.body, kind)]

    def answer(self, kind: type, answer: Any) -> None:
        for call in self.of(kind):
            del self.calls[call.call]
            self.feed(RankAnswered(call.call, answer))

    def answer_one(self, kind: type, rank: int, answer: Any) -> None:
        (call,) = (each for each in self.of(kind) if _rank_of(each.body) == rank)
        del self.calls[call.call]
        self.feed(RankAnswered(call.call, answer))

    def silence(self, kind: type) -> None:
        for call in self.of(kind):
            if self.calls.pop(call.call, None) is not None:  # it may be forgotten with the first
                self.feed(RankSilent(call.call, LaunchError("worker w1 is gone")))

    def end(self, group_id: str) -> None:
        """Have the ranks of a group that is being closed end, and its record."""
        self.answer(CloseRank, Done())
        assert isinstance(self.records[-1], CloseRecord)
        self.feed(RecordClosed(group_id))


def _rank_of(body: RankCall) -> int:
    return body.place.rank if isinstance(body, OpenRank) else body.rank


def done(rank: int, number: int = 1, **fields: Any) -> CellDone:
    fields = {"outcome": "complete", **fields}
    return CellDone(rank, number, duration_s=0.1, log_start=0, log_end=9, **fields)


def test_a_group_opens_when_all_ranks_have_joined() -> None:
    groups = Groups()
    request = groups.ask_open()
    groups.feed(GpusKnown("g1"))
    assert groups.slots.holders() == {"g1": 2}
    groups.feed(RecordOpened("g1", "/runs/g1"))
    assert not groups.of(JoinRank)
    groups.answer(OpenRank, RankAddress("h1", 5, 7))
    assert [call.body.addresses for call in groups.of(JoinRank)] == [("h1:5", "h1:5")] * 2  # type: ignore[union-attr]
    groups.answer_one(JoinRank, 1, RankReady(1, has_process_group=True))
    assert request not in groups.replies
    assert groups.machine.active == ()
    groups.answer_one(JoinRank, 0, RankReady(0, has_process_group=True))
    status = groups.replies[request].status
    assert (status.n_ranks, status.has_process_group) == (2, True)
    assert groups.machine.active == ("g1",)
    assert len(groups.of(WatchRank)) == 2


def test_who_asks_while_it_opens_gets_the_same_group() -> None:
    groups = Groups()
    first = groups.ask_open()
    second = groups.ask_open()
    groups.feed(GpusKnown("g1"))
    groups.feed(RecordOpened("g1", "/runs/g1"))
    groups.answer(OpenRank, RankAddress("h1", 5, 7))
    for rank in range(2):
        groups.answer_one(JoinRank, rank, RankReady(rank))
    assert groups.replies[first].is_new
    assert not groups.replies[second].is_new
    assert groups.replies[second].status.group_id == "g1"


def test_a_group_that_does_not_fit_holds_nothing_and_stands_in_no_line() -> None:
    groups = Groups(n_slots=1)
    request = groups.ask_open(2)
    groups.feed(GpusKnown("g1"))
    assert isinstance(groups.replies[request], PlacementError)
    assert "needs 2 free slots; 1 of 1 are free" in str(groups.replies[request])
    assert groups.slots.take("other", 1, 9) == "w1"


def test_a_record_that_can_not_begin_gives_the_slots_back() -> None:
    groups = Groups()
    request = groups.ask_open()
    groups.feed(GpusKnown("g1"))
    groups.feed(RecordRefused("g1", SpecError("run g1 exists already")))
    assert isinstance(groups.replies[request], SpecError)
    assert not groups.slots.holders()
    assert groups.n_free == 1
    assert groups.open()  # and the name is free


def test_a_rank_that_is_being_started_is_ended_only_when_it_is_there() -> None:
    groups = Groups()
    request = groups.ask_open()
    groups.feed(GpusKnown("g1"))
    groups.feed(RecordOpened("g1", "/runs/g1"))
    (first, second) = groups.of(OpenRank)
    del groups.calls[first.call]
    groups.feed(RankSilent(first.call, LaunchError("worker w1 is gone")))
    assert not groups.of(CloseRank)
    del groups.calls[second.call]
    groups.feed(RankAnswered(second.call, RankAddress("h1", 5, 7)))
    assert len(groups.of(CloseRank)) == 2
    assert request not in groups.replies
    groups.end("g1")
    assert "worker w1 is gone" in str(groups.replies[request])
    assert not groups.slots.holders()


def test_a_start_that_takes_too_long_ends() -> None:
    groups = Groups()
    request = groups.ask_open()
    groups.feed(GpusKnown("g1"))
    groups.feed(RecordOpened("g1", "/runs/g1"))
    groups.now_s = 115.0
    groups.feed(Woken())
    groups.silence(LookAtRank)
    assert groups.wakes_at_s == pytest.approx(130.0)
    groups.now_s = 150.0
    groups.feed(Woken())
    groups.silence(LookAtRank)
    assert groups.wakes_at_s == pytest.approx(160.0)
    groups.now_s = 279.0
    groups.feed(Woken())
    groups.silence(LookAtRank)
    assert groups.wakes_at_s == pytest.approx(280.0)
    groups.now_s = 280.0
    groups.feed(Woken())
    groups.end("g1")
    assert (
        "starting 2 ranks took longer than 180 s: ranks 0-1 are still not begun by a worker after "
        "60 s; see `%cluster logs`"
    ) in str(groups.replies[request])


WAITS = """Thread 0x7f (most recent call first):
  File "/lib/torch/distributed/distributed_c10d.py", line 9 in all_reduce
  File "In [1]", line 2 in <module>
  File "/lib/jupyter_ddl/ranks/main.py", line 150 in execute_all
"""

SLOW = """Thread 0x7f (most recent call first):
  File "/lib/slow.py", line 7 in <module>
  File "/lib/jupyter_ddl/ranks/zygote.py", line 130 in serve
"""


def test_who_waits_for_whom_is_known_15_seconds_into_each_step_of_an_opening() -> None:
    groups = Groups()
    request = groups.ask_open()
    parked = groups.ask_open()
    groups.feed(GpusKnown("g1"))
    groups.feed(RecordOpened("g1", "/runs/g1"))
    groups.answer_one(OpenRank, 0, RankAddress("h1", 5, 7))
    assert groups.wakes_at_s == pytest.approx(115.0)
    assert groups.machine.progress("g1").note == ""
    groups.now_s = 115.0
    groups.feed(Woken())
    assert [_rank_of(call.body) for call in groups.of(LookAtRank)] == [1]
    groups.answer(LookAtRank, RankSeen("S", SLOW))
    told = (
        "rank 1 is still loading what it needs after 15 s (rank 1 at line 7 of /lib/slow.py on h1)"
        "; rank 0 waits for that"
    )
    assert [groups.machine.progress(each).note for each in ("g1", "g2")] == [told, told]
    # The look may be answered behind the rank.
    groups.answer_one(OpenRank, 1, RankAddress("h1", 6, 8))
    assert groups.wakes_at_s == pytest.approx(130.0)
    groups.answer_one(JoinRank, 0, RankReady(0))
    groups.now_s = 130.0
    groups.feed(Woken())
    groups.answer_one(JoinRank, 1, RankReady(1))
    assert request not in groups.replies
    groups.answer(LookAtRank, RankSeen("T", ""))
    assert groups.replies[request].is_new
    assert groups.replies[parked].status.group_id == "g1"


def test_a_rank_that_does_not_join_is_told_of_with_its_place() -> None:
    groups = Groups()
    groups.ask_open()
    groups.feed(GpusKnown("g1"))
    groups.feed(RecordOpened("g1", "/runs/g1"))
    groups.now_s = 110.0
    groups.answer(OpenRank, RankAddress("h1", 5, 7))
    groups.answer_one(JoinRank, 0, RankReady(0))
    assert groups.wakes_at_s == pytest.approx(125.0)
    groups.now_s = 125.0
    groups.feed(Woken())
    groups.answer(LookAtRank, RankSeen("T", ""))
    note = groups.machine.progress("g1").note
    assert note == "rank 1 still meets the others after 15 s (rank 1 stopped on h1)"


def test_a_rank_that_can_not_join_says_why() -> None:
    groups = Groups()
    request = groups.ask_open()
    groups.feed(GpusKnown("g1"))
    groups.feed(RecordOpened("g1", "/runs/g1"))
    groups.answer(OpenRank, RankAddress("h1", 5, 7))
    failure = Failure("exception", "RuntimeError", "no route")
    groups.answer_one(JoinRank, 0, RankReady(0))
    groups.answer_one(JoinRank, 1, RankReady(1, failure=failure))
    groups.end("g1")
    assert "rank 1 could not join its group: RuntimeError: no route" in str(groups.replies[request])


def test_cells_are_executed_one_after_another() -> None:
    groups = Groups()
    group_id = groups.open()
    first = groups.ask(CellWanted, group_id, CELL, None)
    second = groups.ask(CellWanted, group_id, CELL, None)
    assert "still executes In [1] on 2 of 2 ranks" in str(groups.replies[second])
    groups.answer_one(RunCell, 1, done(1))
    assert groups.machine.progress(group_id).waiting == (0,)
    assert first not in groups.replies
    groups.answer_one(RunCell, 0, done(0))
    assert [each.rank for each in groups.replies[first].ranks] == [0, 1]
    third = groups.ask(CellWanted, group_id, CELL, (1,))
    groups.answer(RunCell, done(1, 2))
    assert groups.replies[third].number == 2
    cells = [each.event for each in groups.records if isinstance(each, RecordCell)]
    assert [(cell.number, cell.targets) for cell in cells] == [(1, (0, 1)), (2, (1,))]


def test_a_rank_that_is_not_there_is_named() -> None:
    groups = Groups()
    group_id = groups.open()
    request = groups.ask(CellWanted, group_id, CELL, (0, 5))
    assert "has ranks 0 to 1; -t names 5" in str(groups.replies[request])
    assert groups.machine.n_busy == 0


def test_a_rank_that_dies_in_a_cell_ends_the_group_and_the_cell_says_how() -> None:
    groups = Groups()
    group_id = groups.open()
    request = groups.ask(CellWanted, group_id, CELL, None)
    groups.answer_one(RunCell, 0, RankGone("has ended"))
    assert request not in groups.replies  # the watch tells how it ended
    groups.answer_one(WatchRank, 0, RankGone("was killed (SIGKILL)"))
    error = groups.replies[request]
    assert isinstance(error, GroupLostError)
    assert "rank 0 (pid 7 on h1) was killed (SIGKILL); its variables are gone" in str(error)
    assert not groups.of(RunCell)
    groups.end(group_id)
    assert not groups.slots.holders()
    later = groups.ask(CellWanted, group_id, CELL, None)
    assert "was killed (SIGKILL)" in str(groups.replies[later])


def test_a_cell_behind_a_close_is_told_that_it_was_asked_for_and_a_new_group_can_be_opened() -> (
    None
):
    """Wherever the close has come to: what the one who has closed it asks next never fails."""
    groups = Groups()
    group_id = groups.open()
    groups.ask(CloseWanted, group_id, "it was closed")
    cells = [groups.ask(CellWanted, group_id, CELL, None)]
    opening = groups.ask_open()
    groups.answer(CloseRank, Done())
    cells.append(groups.ask(CellWanted, group_id, CELL, None))
    groups.feed(RecordClosed(group_id))
    cells.append(groups.ask(CellWanted, group_id, CELL, None))
    for cell in cells:
        assert groups.replies[cell].was_closed
    assert opening not in groups.replies
    assert groups.records[-1] == AskGpus("g2")


def test_a_cell_during_which_its_group_is_closed_is_not_told_to_be_tried_again() -> None:
    groups = Groups()
    group_id = groups.open()
    request = groups.ask(CellWanted, group_id, CELL, None)
    groups.ask(CloseWanted, group_id, "it was closed")
    assert not groups.replies[request].was_closed


def test_a_rank_whose_watch_says_nothing_is_not_waited_for_without_end() -> None:
    groups = Groups()
    group_id = groups.open()
    request = groups.ask(CellWanted, group_id, CELL, None)
    groups.answer_one(RunCell, 1, RankGone("has left"))
    for groups.now_s in (105.0, 110.0):  # at the first, its ranks are looked at
        assert groups.wakes_at_s == pytest.approx(groups.now_s)
        groups.feed(Woken())
        groups.silence(LookAtRank)
    assert "rank 1 (pid 7 on h1) has left" in str(groups.replies[request])


def test_who_waits_in_a_cell_that_takes_long_is_told_while_it_does() -> None:
    groups = Groups(n_slots=3)
    group_id = groups.open(3)
    request = groups.ask(CellWanted, group_id, CELL, (0, 1))
    assert groups.machine.progress(group_id).note == ""
    groups.now_s = 105.0
    groups.feed(Woken())
    looks = [call.body for call in groups.of(LookAtRank)]
    assert looks == [LookAtRank(group_id, rank, ("h1",) * 3) for rank in (0, 1)]
    groups.answer_one(LookAtRank, 0, RankSeen("S", WAITS))
    groups.answer_one(LookAtRank, 1, RankSeen("T", ""))
    assert groups.machine.progress(group_id).note == (
        "after 5 s rank 1 is stopped (SIGSTOP); rank 0 waits in all_reduce at line 2; rank 2 does "
        "not execute it"
    )
    assert groups.wakes_at_s == pytest.approx(110.0)
    # What comes behind the cell's end is not asked for any more.
    groups.now_s = 110.0
    groups.feed(Woken())
    assert len(groups.of(LookAtRank)) == 2
    for rank in (0, 1):
        groups.answer_one(RunCell, rank, done(rank))
    assert not groups.of(LookAtRank)
    assert groups.replies[request].note == ""
    assert groups.machine.progress(group_id).note == ""


def test_a_rank_of_its_own_waits_for_nobody() -> None:
    groups = Groups()
    group_id = groups.open(1)
    groups.ask(CellWanted, group_id, CELL, None)
    groups.now_s = 1000.0
    groups.feed(Woken())
    assert not groups.of(LookAtRank)


def test_a_worker_that_is_lost_ends_the_group() -> None:
    groups = Groups()
    group_id = groups.open()
    groups.silence(WatchRank)
    assert groups.machine.active == ()
    groups.silence(CloseRank)
    groups.feed(RecordClosed(group_id))
    assert not groups.slots.holders()
    end = next(each for each in groups.records if isinstance(each, CloseRecord))
    assert (end.state, end.reason) == ("failed", "rank 0 (pid 7 on h1) was lost with its worker")


def test_a_hang_is_broken_off_and_the_process_group_made_anew() -> None:
    groups = Groups()
    group_id = groups.open()
    request = groups.ask(CellWanted, group_id, CELL, None)
    groups.answer_one(RunCell, 0, done(0, outcome="cancelled"))
    interrupt = groups.ask(InterruptWanted, group_id)
    assert [call.body.rank for call in groups.of(InterruptRank)] == [1]  # type: ignore[union-attr]
    assert interrupt not in groups.replies
    groups.answer(InterruptRank, Done())
    assert interrupt in groups.replies
    groups.answer_one(RunCell, 1, done(1, outcome="cancelled", is_cut_off=True))
    assert len(groups.of(RejoinRank)) == 2
    groups.answer_one(RejoinRank, 0, RankReady(0))
    assert request not in groups.replies
    groups.answer_one(RejoinRank, 1, RankReady(1))
    assert "the process group rebuilt" in groups.replies[request].note


def test_a_process_group_that_can_not_be_made_anew_ends_the_group() -> None:
    groups = Groups()
    group_id = groups.open()
    request = groups.ask(CellWanted, group_id, CELL, None)
    groups.answer_one(RunCell, 0, done(0, is_cut_off=True))
    groups.answer_one(RunCell, 1, done(1))
    groups.silence(RejoinRank)
    assert "its process group could not be rebuilt" in str(groups.replies[request])


def test_a_reset_ends_the_group_with_its_cell_and_opens_another() -> None:
    groups = Groups()
    group_id = groups.open()
    cell = groups.ask(CellWanted, group_id, CELL, None)
    request = groups.ask_open(2, reset=True)
    assert "it was replaced (--reset)" in str(groups.replies[cell])
    groups.end(group_id)
    groups.feed(GpusKnown("g2"))
    assert groups.slots.holders() == {"g2": 2}
    assert request not in groups.replies


def test_another_size_needs_a_reset() -> None:
    groups = Groups()
    groups.open(1)
    request = groups.ask_open(2)
    assert "has 1 ranks, 2 were asked for; --reset replaces it" in str(groups.replies[request])


def test_a_close_is_answered_when_nothing_is_left() -> None:
    groups = Groups()
    group_id = groups.open()
    request = groups.ask(CloseWanted, group_id, "it was closed")
    again = groups.ask(CloseWanted, group_id, "it was closed")
    assert not {request, again} & groups.replies.keys()
    groups.end(group_id)
    assert {request, again} <= groups.replies.keys()
    assert groups.ask(CloseWanted, group_id, "it was closed") in groups.replies


def test_the_end_of_the_cluster_ends_groups_that_are_open_or_on_the_way() -> None:
    groups = Groups(n_slots=3)
    group_id = groups.open(1)
    verb = CellGroup(n_ranks=1, gpus_per_rank=0, name="other")
    other = groups.ask(OpenWanted, RunSpec("g9", verb, Program("", ""), 0, "local", 0.0))
    groups.feed(GpusKnown("g9"))
    request = groups.ask(AllCloseWanted, "the cluster ended")
    groups.end(group_id)
    assert request not in groups.replies
    groups.feed(RecordOpened("g9", "/runs/g9"))
    groups.end("g9")
    assert request in groups.replies
    assert "the cluster ended" in str(groups.replies[other])
    assert isinstance(groups.replies[groups.ask_open()], LaunchError)


def test_a_late_answer_means_nothing_and_a_second_end_is_a_bug() -> None:
    groups = Groups()
    group_id = groups.open()
    (watch, _) = groups.of(WatchRank)
    groups.ask(CloseWanted, group_id, "it was closed")
    groups.feed(RankAnswered(watch.call, RankGone("was closed")))
    groups.end(group_id)
    with pytest.raises(IllegalTransitionError, match="has ended unasked"):
        groups.feed(RecordClosed(group_id))


@pytest.mark.parametrize("seed", range(300))
def test_nothing_is_lost_doubled_or_waited_for_without_end(seed: int) -> None:
    group_story(seed)
