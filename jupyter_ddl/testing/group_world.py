"""Persistent groups in virtual time: clients that ask, ranks that die or hang, and one machine.

:func:`group_story` plays the story of a seed, and raises ``AssertionError`` where a request was not
answered once, cells got out of order, or ranks or slots were left over.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

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
from jupyter_ddl.driving.machine import Refuse, Reply, WaitUntil, WakeOthers, Woken
from jupyter_ddl.errors import GroupLostError, LaunchError, SpecError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.cells import (
    Cell,
    CellDone,
    CellResult,
    CloseRank,
    Done,
    InterruptRank,
    JoinRank,
    LookAtRank,
    OpenRank,
    RankAddress,
    RankAnswer,
    RankGone,
    RankReady,
    RankSeen,
    RejoinRank,
    RunCell,
    WatchRank,
)
from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.replies import GroupResult
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.testing.clock import Timer, VirtualClock
from jupyter_ddl.verbs.run import CellGroup

__all__ = ["GroupWorld", "group_story"]

_PATIENCE_S = 3600.0
_OTHER = "another-run"


class _Rank:
    """The process of one rank."""

    def __init__(self, group_id: str, rank: int, worker: str) -> None:
        self.group_id = group_id
        self.rank = rank
        self.worker = worker
        self.is_alive = True
        self.is_hanging = False
        self.cell: tuple[int, RunCell] | None = None
        """The call and the cell that it executes."""
        self.watch: int | None = None


class GroupWorld:
    """The groups of one controller, until the cluster ends."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = Random(seed)
        self.clock = VirtualClock(rng)
        self.slots = SlotBook()
        self.hosts: dict[str, str] = {}
        self.n_workers = 0
        for _ in range(rng.randint(1, 3)):
            self._add_worker()
        self.n_tokens = 0
        self.machine = CellGroups(
            self.slots, ("/shm",), lambda address: self.hosts.get(address, "h"), self._token
        )
        self.p_fail = rng.choice([0.0, 0.0, 0.05, 0.2])
        self.p_hang = rng.choice([0.0, 0.1])
        self.p_late = rng.choice([0.0, 0.3])
        self.n_events = 0
        self.n_requests = 0
        self.requests: dict[int, Any] = {}
        self.calls: dict[int, Call] = {}
        self.forgotten: set[int] = set()
        self.ranks: dict[tuple[str, int], _Rank] = {}
        self.known: list[str] = []
        """Ids of groups that clients know."""
        self.open_records: dict[str, int] = {}
        """Cells on record, by the group whose record is open."""
        self.ended_records: set[str] = set()
        self.timer: Timer | None = None
        self.is_over = False
        self.n_groups = 0
        self._plan()

    def _token(self) -> str:
        self.n_tokens += 1
        return str(self.n_tokens)

    def _add_worker(self) -> None:
        self.n_workers += 1
        self.hosts[f"w{self.n_workers}"] = f"h{self.rng.randint(1, 2)}"
        self.slots.set_workers(dict.fromkeys(self.hosts, 2))

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        self.clock.call_later(seconds, work)

    def delay(self) -> float:
        return self.rng.choice([0.0, 0.001, 0.001, 0.05])

    # -- what happens ----------------------------------------------------------------------------

    def _plan(self) -> None:
        rng = self.rng
        span = rng.choice([2.0, 20.0])
        deeds: list[Callable[[], object]] = [
            self._open,
            self._open,
            self._execute,
            self._execute,
            self._execute,
            self._interrupt,
            self._close,
            self._kill_rank,
            self._lose_worker,
            self._add_worker,
            self._others_come,
        ]
        self.later(0.0, self._open)
        for _ in range(rng.randint(2, 16)):
            self.later(rng.random() * span, rng.choice(deeds))
        if rng.random() < 0.3:  # while something may be on its way
            self.later(rng.random() * span, self._close_all)
        self.later(span + 500.0, self._interrupt_all)
        self.later(span + 600.0, self._close_all)

    def _request(self, make: Callable[[int], Any]) -> None:
        self.n_requests += 1
        event = make(self.n_requests)
        self.requests[self.n_requests] = event
        self.feed(event)

    def _open(self) -> None:
        rng = self.rng
        self.n_groups += 1
        verb = CellGroup(
            n_ranks=rng.choice([None, 1, 2, 2, 4]), gpus_per_rank=0, name=rng.choice("ab")
        )
        spec = RunSpec(f"g{self.n_groups}", verb, Program("", ""), 0, "local", 0.0)
        reset = rng.random() < 0.3
        self._request(lambda number: OpenWanted(number, spec, reset))

    def _execute(self) -> None:
        if not self.known:
            return
        group_id = self.rng.choice(self.known[-2:])
        targets = self.rng.choice([None, None, (0,), (0, 1), (7,)])
        cell = Cell("1", "In [1]")
        self._request(lambda number: CellWanted(number, group_id, cell, targets))

    def _interrupt(self, group_id: str = "") -> None:
        if self.known:
            group_id = group_id or self.rng.choice(self.known[-2:])
            self._request(lambda number: InterruptWanted(number, group_id))

    def _interrupt_all(self) -> None:
        """What hangs is interrupted at last, as users do."""
        for group_id in self.machine.active:
            self._interrupt(group_id)

    def _close(self) -> None:
        if self.known:
            group_id = self.rng.choice(self.known[-2:])
            self._request(lambda number: CloseWanted(number, group_id, "it was closed"))

    def _close_all(self) -> None:
        self._request(lambda number: AllCloseWanted(number, "the cluster ended"))

    def _kill_rank(self) -> None:
        alive = [rank for rank in self.ranks.values() if rank.is_alive]
        if alive:
            self._die(self.rng.choice(alive), "was killed (SIGKILL)")

    def _lose_worker(self) -> None:
        if not self.hosts:
            return
        worker = self.rng.choice(sorted(self.hosts))
        del self.hosts[worker]
        self.slots.set_workers(dict.fromkeys(self.hosts, 2))
        for rank in self.ranks.values():
            if rank.worker == worker:
                rank.is_alive = False
                rank.cell = rank.watch = None
        for call in tuple(self.calls.values()):
            if call.worker == worker:
                self._silent(call.call)
        self.feed(Woken())

    def _others_come(self) -> None:
        self.slots.join(_OTHER)
        self.slots.take(_OTHER, 1, 99)
        self.later(5.0, lambda: self.slots.leave(_OTHER))

    # -- the shell -------------------------------------------------------------------------------

    def feed(self, event: Any) -> None:
        self.n_events += 1
        for instruction in self.machine.handle(event, self.clock.now()):
            self._carry_out(instruction)

    def _carry_out(self, instruction: Any) -> None:
        rng = self.rng
        match instruction:
            case Call():
                self._called(instruction)
            case Forget(calls=calls):
                for call in calls:
                    if rng.random() < self.p_late:
                        self.forgotten.add(call)
                    else:
                        self.calls.pop(call)
            case AskGpus(group_id=group_id):
                self.later(self.delay(), lambda: self.feed(GpusKnown(group_id)))
            case OpenRecord(spec=spec):
                group_id = spec.run_id
                assert group_id not in self.open_records, "its record begins a second time"
                if rng.random() < self.p_fail:
                    error = SpecError("exists already")
                    self.later(self.delay(), lambda: self.feed(RecordRefused(group_id, error)))
                else:
                    self.open_records[group_id] = 0
                    self.later(self.delay(), lambda: self.feed(RecordOpened(group_id, "/d")))
            case RecordCell(group_id=group_id, event=event):
                assert event.number == self.open_records[group_id] + 1, "cells out of order"
                self.open_records[group_id] = event.number
            case CloseRecord(group_id=group_id):
                del self.open_records[group_id]
                assert group_id not in self.ended_records
                assert group_id not in self.slots.holders(), "it has ended, and holds slots"
                self.ended_records.add(group_id)
                self.later(self.delay(), lambda: self.feed(RecordClosed(group_id)))
            case Reply(request=request, result=result):
                self._replied(self.requests.pop(request), result)
            case Refuse(request=request, error=error):
                self._refused(self.requests.pop(request), error)
            case WaitUntil(at_s=at_s):
                if self.timer is not None:
                    self.timer.cancel()
                self.timer = None if at_s is None else self.clock.call_at(at_s, self._wake)
            case WakeOthers():
                pass

    def _wake(self) -> None:
        self.feed(Woken())

    def _replied(self, event: Any, result: Any) -> None:
        match event:
            case OpenWanted(spec=spec):
                assert isinstance(result, GroupResult)
                status = result.status
                assert status.name == CellGroup.of(spec).name
                assert status.n_ranks == len({rank.rank for rank in status.ranks})
                if result.is_new:
                    assert status.group_id == spec.run_id
                    assert self.slots.holders().get(status.group_id, 0) <= status.n_ranks
                self.known.append(status.group_id)
            case CellWanted(group_id=group_id, targets=targets):
                assert isinstance(result, CellResult)
                assert not result.waiting, "it is answered before all ranks have ended it"
                ranks = [done.rank for done in result.ranks]
                assert ranks == sorted(set(ranks)), ranks
                assert targets is None or ranks == sorted(targets)
                assert {done.number for done in result.ranks} == {result.number}, "another's cell"
                assert self.open_records[group_id] == result.number
            case AllCloseWanted():
                assert not self.machine.active

    def _refused(self, event: Any, error: Exception) -> None:
        if isinstance(error, GroupLostError):
            assert event.group_id not in self.machine.active
        elif isinstance(event, CellWanted):
            assert isinstance(error, SpecError), error

    # -- ranks -----------------------------------------------------------------------------------

    def _called(self, call: Call) -> None:
        assert call.call not in self.calls, "asked twice"
        self.calls[call.call] = call
        if call.timeout_s is not None:
            self.later(call.timeout_s, lambda: self._silent(call.call))
        if call.worker not in self.hosts:
            self.later(self.delay(), lambda: self._silent(call.call))
        else:
            self.later(self.delay(), lambda: self._arrived(call))

    def _answer(self, call: int | None, answer: RankAnswer) -> None:
        if call is not None and self.calls.pop(call, None) is not None:
            self.feed(RankAnswered(call, answer))

    def _silent(self, call: int) -> None:
        if self.calls.pop(call, None) is not None:
            self.feed(RankSilent(call, LaunchError("its worker is gone")))

    def _arrived(self, call: Call) -> None:
        body = call.body
        if call.worker not in self.hosts:
            self._silent(call.call)
            return
        fails = self.rng.random() < self.p_fail
        if isinstance(body, OpenRank):
            key = body.group_id, body.place.rank
            assert key not in self.ranks, f"rank {key} is started twice"
            if fails:
                self._answer(call.call, RankGone("could not be started"))
                return
            self.ranks[key] = _Rank(*key, call.worker)
            host = self.hosts[call.worker]
            self.later(self.delay(), lambda: self._answer(call.call, RankAddress(host, 1, 2)))
            return
        rank = self.ranks.get((body.group_id, body.rank))
        if isinstance(body, CloseRank):
            if rank is not None and rank.is_alive:
                self._die(rank, "was closed")
            self._answer(call.call, Done())
        elif rank is None or not rank.is_alive:
            self._answer(call.call, RankGone("is not there"))
        elif isinstance(body, WatchRank):
            rank.watch = call.call
        elif isinstance(body, RunCell):
            self._begin_cell(call.call, rank, body)
        elif isinstance(body, InterruptRank):
            self._answer(call.call, Done())
            if rank.cell is not None and rank.cell[1].number == body.number:
                was_hanging, rank.is_hanging = rank.is_hanging, False
                self.later(0.5, lambda: self._end_cell(rank, body.number, was_hanging))
        elif isinstance(body, LookAtRank):
            state = self.rng.choice("ST")
            self.later(self.delay(), lambda: self._answer(call.call, RankSeen(state, "")))
        elif isinstance(body, JoinRank | RejoinRank):
            failure = Failure("exception", "RuntimeError", "no route") if fails else None
            seconds = 400.0 if self.rng.random() < self.p_fail / 4 else self.delay()
            ready = RankReady(rank.rank, failure=failure)
            self.later(seconds, lambda: self._answer(call.call, ready))

    def _begin_cell(self, call: int, rank: _Rank, body: RunCell) -> None:
        assert rank.cell is None, "a rank is given a cell while it executes another"
        rank.cell = call, body
        if self.rng.random() < self.p_hang:
            rank.is_hanging = True
            return
        seconds = self.rng.choice([0.001, 0.01, 1.0])
        self.later(seconds, lambda: self._end_cell(rank, body.number, False))

    def _end_cell(self, rank: _Rank, number: int, is_cut_off: bool) -> None:
        if rank.cell is None or rank.cell[1].number != number or rank.is_hanging:
            return
        (call, _), rank.cell = rank.cell, None
        if not rank.is_alive:
            return
        done = CellDone(
            rank=rank.rank,
            number=number,
            outcome="cancelled" if is_cut_off else "complete",
            duration_s=0.0,
            log_start=0,
            log_end=number,
            is_cut_off=is_cut_off,
        )
        self._answer(call, done)

    def _die(self, rank: _Rank, how: str) -> None:
        """Its call ends; who watches it is told how, perhaps later, perhaps never."""
        rank.is_alive = False
        watch, rank.watch = rank.watch, None
        if rank.cell is not None:
            (call, _), rank.cell = rank.cell, None
            self.later(self.delay(), lambda: self._answer(call, RankGone("has ended")))
        seconds = self.rng.choice([0.0, 0.1, 30.0])
        self.later(seconds, lambda: self._answer(watch, RankGone(how)))

    # -- the story -------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it to its end, and see what has become of it."""
        while self.clock.step():
            assert self.clock.now_s < _PATIENCE_S, "a wait does not end"
            self._check_now()
        assert not self.requests, f"never answered: {self.requests}"
        assert not self.open_records, f"records without an end: {self.open_records}"
        assert not (set(self.slots.holders()) - {_OTHER}), self.slots.holders()
        left = [r for r in self.ranks.values() if r.is_alive and r.worker in self.hosts]
        assert not left, f"ranks are left: {[(r.group_id, r.rank) for r in left]}"
        assert not set(self.calls) - self.forgotten, f"calls are left: {self.calls}"

    def _check_now(self) -> None:
        for status in self.machine.status():
            assert self.slots.holders().get(status.group_id, 0) <= status.n_ranks
        names = [status.name for status in self.machine.status()]
        assert len(names) == len(set(names)), "two groups of one name"


def group_story(seed: int) -> tuple[int, int]:
    """Play the story of a seed; returns how many events the machine took, and requests."""
    world = GroupWorld(seed)
    try:
        world.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world.n_events, world.n_requests
