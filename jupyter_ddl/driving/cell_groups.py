"""The persistent groups of one controller: ranks start and end together, cells in between.  Pure.

A group is opened (GPUs known, places taken, record begun, ranks started, ranks joined), executes
one cell at a time, and is closed (ranks ended, places given back, record ended).  What is asked for
a name whose group is between two of these waits until it is there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from jupyter_ddl.driving.admission import admitted, check_gpus_fit
from jupyter_ddl.driving.assignments import place_ranks
from jupyter_ddl.driving.cell_group import (
    LiveGroup,
    Phase,
    RunningCell,
    cell_event,
    checked_targets,
    end_of,
    lost_error,
    status_of,
    unexpected,
)
from jupyter_ddl.driving.cell_watch import CellWatch
from jupyter_ddl.driving.group_events import (
    AllCloseWanted,
    AskGpus,
    Call,
    CellWanted,
    CloseRecord,
    CloseWanted,
    Forget,
    GpusKnown,
    GroupEvent,
    GroupInstruction,
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
from jupyter_ddl.driving.hangs import StepWatch, whereabouts
from jupyter_ddl.driving.machine import (
    Machine,
    Now,
    Refuse,
    Reply,
    WaitUntil,
    WakeOthers,
    Woken,
    earliest,
)
from jupyter_ddl.errors import (
    JupyterDDLError,
    LaunchError,
    PlacementError,
    SpecError,
)
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.cells import (
    CellDone,
    CellResult,
    CloseRank,
    InterruptRank,
    JoinRank,
    LookAtRank,
    OpenRank,
    RankAddress,
    RankAnswer,
    RankCall,
    RankReady,
    RankSeen,
    RejoinRank,
    RunCell,
    WatchRank,
)
from jupyter_ddl.protocol.events import Beat
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.replies import GroupResult, GroupStatus, RankStatus
from jupyter_ddl.verbs.run import CellGroup

__all__ = ["CellGroups"]

_START_TIMEOUT_S = 180.0
"""Of a start with everything in it: forks, an import of torch, the rendezvous."""
_JOIN_TIMEOUT_S = 120.0
_CONTROL_TIMEOUT_S = 5.0
_WATCH_LATE_S = 10.0
"""How long a rank that did not end its cell may be watched in vain for how it ended."""
_N_REMEMBERED = 50


class CellGroups(Machine[GroupEvent, GroupInstruction]):
    """All persistent groups of one controller.

    Parameters
    ----------
    host_of : callable
        Address of a worker's host.
    new_token : callable
        Makes what nobody can guess: ranks of a group know each other by it.
    """

    def __init__(
        self,
        slots: SlotBook,
        blob_dirs: tuple[str, ...],
        host_of: Callable[[str], str],
        new_token: Callable[[], str],
    ) -> None:
        super().__init__("persistent groups")
        self._slots = slots
        self._blob_dirs = blob_dirs
        self._host_of = host_of
        self._new_token = new_token
        self._groups: dict[str, LiveGroup] = {}  # by name
        self._ended: OrderedDict[str, tuple[Literal["complete", "failed"], str]] = OrderedDict()
        self._n_calls = 0
        self._of_call: dict[int, LiveGroup] = {}
        self._closers: list[int] = []
        """Requests that wait until there is no group."""
        self._closed_why = ""
        self._wakes_at_s: float | None = None
        self._now = Now(0.0, 0.0)

    # -- what the controller sees ----------------------------------------------------------------

    @property
    def active(self) -> tuple[str, ...]:
        """Ids of the groups that are open."""
        return tuple(group.id for group in self._groups.values() if group.phase == "ready")

    @property
    def n_busy(self) -> int:
        """Groups that execute a cell."""
        return sum(group.running is not None for group in self._groups.values())

    def status(self) -> tuple[GroupStatus, ...]:
        open_ = (group for group in self._groups.values() if group.phase == "ready")
        return tuple(map(status_of, open_))

    def progress(self, group_id: str) -> CellResult:
        """The cell that a group executes, as far as it is; of one that opens, what is to be told.

        Raises
        ------
        GroupLostError
            It has ended.
        """
        for opening in self._groups.values():
            asked = (opening.id, *(wanted.spec.run_id for wanted in opening.parked))
            if opening.phase in ("starting", "joining") and group_id in asked:
                return CellResult(group_id, 0, (), note=opening.notice)
        group = self._open_group(group_id)
        if group.running is None:
            return CellResult(group_id, group.n_cells, ())
        return group.running.result(group_id, group.running.notice)

    def _open_group(self, group_id: str) -> LiveGroup:
        for group in self._groups.values():
            if group.id == group_id and group.phase == "ready":
                return group
        state, reason = self._ended.get(group_id, ("failed", "this cluster does not know it"))
        raise lost_error(group_id, reason, was_closed=state == "complete")

    # -- events ----------------------------------------------------------------------------------

    def _on(self, event: GroupEvent, now: Now) -> None:
        self._now = now
        match event:
            case OpenWanted():
                self._open(event)
            case CellWanted() | InterruptWanted():
                self._of_open_group(event)
            case CloseWanted(request=request, group_id=group_id, why=why):
                self._close_wanted(request, group_id, why)
            case AllCloseWanted(request=request, why=why):
                self._close_all(request, why)
            case GpusKnown(group_id=group_id):
                for group in self._in_phase(group_id, "gpus"):
                    self._place(group)
            case RecordOpened(group_id=group_id, directory=directory):
                for group in self._in_phase(group_id, "record"):
                    self._start(group, directory)
            case RecordRefused(group_id=group_id, error=error):
                for group in self._in_phase(group_id, "record"):
                    self._refuse_open(group, error)
            case RecordClosed(group_id=group_id):
                ended = self._in_phase(group_id, "recording")
                if not ended:
                    self._illegal(f"the record of group {group_id} has ended unasked", group_id)
                self._gone(ended[0])
            case RankAnswered(call=call, answer=answer):
                self._answered(call, answer)
            case RankSilent(call=call, error=error):
                self._answered(call, error)
            case Woken():
                self._wakes_at_s = None  # what has become due is seen below
        self._check_deadlines()
        at_s = self._deadline_s()
        if at_s != self._wakes_at_s:
            self._wakes_at_s = at_s
            self._do(WaitUntil(at_s))

    def _of_open_group(self, wanted: CellWanted | InterruptWanted) -> None:
        try:
            group = self._open_group(wanted.group_id)
            if isinstance(wanted, CellWanted):
                self._execute(group, wanted)
            else:
                self._interrupt(group, wanted.request)
        except JupyterDDLError as error:
            self._do(Refuse(wanted.request, error))

    def _in_phase(self, group_id: str, phase: Phase) -> list[LiveGroup]:
        """The group of an id, if it is where this belongs to: it may be gone meanwhile."""
        found = self._groups.values()
        return [group for group in found if group.id == group_id and group.phase == phase]

    def _deadline_s(self) -> float | None:
        groups = self._groups.values()
        opening = [each for each in groups if each.phase in ("starting", "joining")]
        late = (each.watch.late_due_s for each in opening if each.watch is not None)
        running = [each.running for each in groups if each.running is not None]
        unclear = (at_s for each in running for at_s, _ in each.unclear.values())
        looks = (each.watch.due_s for each in running if each.watch is not None)
        return earliest(*(each.opened_by_s for each in opening), *late, *unclear, *looks)

    def _check_deadlines(self) -> None:
        for group in tuple(self._groups.values()):
            if group.phase in ("starting", "joining") and self._now.mono_s >= group.opened_by_s:
                text = f"starting {group.n_ranks} ranks took longer than {_START_TIMEOUT_S:.0f} s"
                why = f": {group.notice}" if group.notice else ""
                self._refuse_open(group, LaunchError(f"{text}{why}; see `%cluster logs`"))
            elif group.watch is not None and group.watch.is_late(self._now.mono_s):
                for rank in sorted({rank for rank, _ in group.calls.values()}):
                    self._call(group, rank, LookAtRank(group.id, rank), _CONTROL_TIMEOUT_S)
            elif group.running is not None:
                self._look_into_cell(group, group.running)
                for rank, (at_s, text) in tuple(group.running.unclear.items()):
                    if self._now.mono_s >= at_s and group.phase == "ready":
                        self._rank_lost(group, rank, text)

    # -- opening ---------------------------------------------------------------------------------

    def _open(self, wanted: OpenWanted) -> None:
        try:
            verb = CellGroup.of(wanted.spec)
        except SpecError as error:
            self._do(Refuse(wanted.request, error))
            return
        if self._closers or self._closed_why:
            text = f"no group can be opened: {self._closed_why}"
            self._do(Refuse(wanted.request, LaunchError(text)))
            return
        group = self._groups.get(verb.name)
        if group is None:
            self._groups[verb.name] = LiveGroup(verb.name, wanted.spec, wanted.request)
            self._do(AskGpus(wanted.spec.run_id))
        elif group.phase != "ready":
            group.parked.append(wanted)
        elif wanted.reset:
            group.parked.append(wanted)
            self._end(group, "complete", "it was replaced (--reset)")
        elif verb.n_ranks is not None and verb.n_ranks != group.n_ranks:
            text = (
                f"group {group.id} has {group.n_ranks} ranks, {verb.n_ranks} were asked for; "
                f"--reset replaces it (its variables are lost), or leave -n out"
            )
            self._do(Refuse(wanted.request, PlacementError(text)))
        else:
            self._do(Reply(wanted.request, GroupResult(status_of(group), is_new=False)))

    def _place(self, group: LiveGroup) -> None:
        """Take places: all, or none."""
        verb = CellGroup.of(group.spec)
        slots = self._slots
        n_ranks = verb.n_ranks or max(1, slots.n_free)
        try:
            verb = msgspec.structs.replace(verb, n_ranks=n_ranks)
            spec = admitted(msgspec.structs.replace(group.spec, verb=verb), slots, slots.n_slots)
            check_gpus_fit(spec, slots)
            places = slots.take_with_gpus(spec.run_id, n_ranks, spec.gpus_per_rank)
            if places is None:
                raise _no_room(slots, n_ranks, spec.gpus_per_rank)
        except JupyterDDLError as error:
            slots.leave(group.id)  # it is refused and does not stand in line
            self._do(Refuse(group.request, error))
            self._gone(group)
            return
        group.spec, group.places = spec, places
        group.hosts = tuple(self._host_of(worker) for worker in places.workers)
        group.devices = tuple(slots.gpus.texts(places.gpus))
        group.phase = "record"
        self._do(OpenRecord(spec, slots.n_slots))

    def _start(self, group: LiveGroup, directory: str) -> None:
        group.phase, group.directory = "starting", directory
        if group.failure is not None:  # it was closed meanwhile
            self._refuse_open(group, group.failure)
            return
        group.started_at_s = self._now.wall_s
        group.opened_by_s = self._now.mono_s + _START_TIMEOUT_S
        group.watch = StepWatch(group.n_ranks, None, self._now.mono_s)
        ranks = group.spec.verb.ranks
        base = RankPlace(
            group_id=f"{group.id}-{self._new_token()}",
            backend=ranks.backend,
            initialize=ranks.initialize,
            timeout_s=_JOIN_TIMEOUT_S,
            token=self._new_token(),
        )
        places = place_ranks(group.places.workers, group.hosts, base, group.places.gpus)
        for rank, place in enumerate(places):
            body = OpenRank(group.id, directory, self._blob_dirs, place)
            self._call(group, rank, body, _START_TIMEOUT_S)

    def _opening_answered(self, group: LiveGroup) -> None:
        """All ranks have started, or all have joined."""
        if group.failure is not None:
            self._refuse_open(group, group.failure)
            return
        kind = RankAddress if group.phase == "starting" else RankReady
        for rank, answer in sorted(group.answers.items()):
            if (error := unexpected(group, rank, answer, kind)) is not None:
                self._refuse_open(group, error)
                return
        answers: Any = tuple(group.answers[rank] for rank in range(group.n_ranks))
        group.answers.clear()
        if group.phase == "starting":
            group.phase, group.addresses = "joining", answers
            group.watch = StepWatch(group.n_ranks, None, self._now.mono_s)
            known = tuple(f"{each.host}:{each.port}" for each in answers)
            for rank in range(group.n_ranks):
                body = JoinRank(group.id, rank, known, _JOIN_TIMEOUT_S, answers[0].store)
                self._call(group, rank, body, _START_TIMEOUT_S)
                self._check_phase(group, rank, "rendezvous")
        else:
            self._opened(group, answers)

    def _check_phase(
        self, group: LiveGroup, rank: int, phase: Literal["rendezvous", "cell"]
    ) -> None:
        if group.watch is not None:
            group.watch.observe(rank, Beat(0, 0, phase, 0, self._now.wall_s), self._now.mono_s)

    def _rank_seen(self, group: LiveGroup, rank: int, answer: RankAnswer | JupyterDDLError) -> None:
        if isinstance(answer, RankSeen):
            group.where[rank] = whereabouts(answer.state, answer.stacks, group.hosts[rank])
        bodies = [body for _, body in group.calls.values()]
        if not any(isinstance(body, LookAtRank) for body in bodies) and group.watch is not None:
            group.notice, group.where = group.watch.absent(group.where), {}
            group.watch.look_again(self._now.mono_s)
        if not bodies:
            self._opening_answered(group)

    def _opened(self, group: LiveGroup, ready: Sequence[RankReady]) -> None:
        group.phase, group.watch = "ready", None
        group.has_process_group = all(each.has_process_group for each in ready)
        group.statuses = [
            RankStatus(
                rank=rank,
                worker=group.places.workers[rank],
                host=address.host,
                pid=address.pid,
                device=group.devices[rank] if group.devices else ready[rank].device,
                log=f"rank-{rank}.log",
                log_end=0,
            )
            for rank, address in enumerate(group.addresses)
        ]
        for rank in range(group.n_ranks):
            self._call(group, rank, WatchRank(group.id, rank), None)
        self._do(Reply(group.request, GroupResult(status_of(group), is_new=True)))
        self._unpark(group)

    def _refuse_open(self, group: LiveGroup, error: JupyterDDLError) -> None:
        """It can't be opened: whatever has started is ended, and then it is told."""
        group.failure = group.failure or error
        if group.phase == "starting" and group.calls and self._now.mono_s < group.opened_by_s:
            return  # a rank that is being started can't be ended before it is there
        has_record = group.phase != "record"
        self._end(group, "failed", f"it could not be started: {error}", has_record=has_record)

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, group: LiveGroup, rank: int, body: RankCall, timeout_s: float | None) -> int:
        self._n_calls += 1
        group.calls[self._n_calls] = rank, body
        self._of_call[self._n_calls] = group
        self._do(Call(self._n_calls, group.places.workers[rank], body, timeout_s))
        return self._n_calls

    def _forget_calls(self, group: LiveGroup, calls: Sequence[int]) -> None:
        if calls:
            self._do(Forget(tuple(calls)))
        for call in calls:
            del self._of_call[call]
            del group.calls[call]

    def _answered(self, call: int, answer: RankAnswer | JupyterDDLError) -> None:
        group = self._of_call.pop(call, None)
        if group is None:
            return  # it was forgotten
        rank, body = group.calls.pop(call)
        match body:
            case OpenRank() | JoinRank():
                if isinstance(answer, JupyterDDLError):
                    self._refuse_open(group, answer)
                    return
                group.answers[rank] = answer
                self._check_phase(
                    group, rank, "rendezvous" if group.phase == "starting" else "cell"
                )
                if not group.calls:
                    self._opening_answered(group)
            case LookAtRank():
                if group.running is None:
                    self._rank_seen(group, rank, answer)
                else:
                    self._seen_in_cell(group, rank, answer)
            case WatchRank():
                self._rank_lost(group, rank, end_of(answer))
            case RunCell():
                self._cell_answered(group, rank, answer)
            case RejoinRank():
                self._rejoin_answered(group, rank, answer)
            case InterruptRank():
                self._interrupt_answered(group, call)
            case CloseRank():
                if not group.calls:
                    self._ranks_ended(group)

    # -- cells -----------------------------------------------------------------------------------

    def _execute(self, group: LiveGroup, wanted: CellWanted) -> None:
        targets = checked_targets(group, wanted.targets)
        now_s = self._now.wall_s
        if (other := group.running) is not None:
            raise SpecError(
                f"group {group.id} still executes {other.cell.filename} on "
                f"{len(other.targets)} of {group.n_ranks} ranks, for {now_s - other.at_s:.0f} s; "
                f"wait for it, or replace the group with --reset"
            )
        group.n_cells += 1
        group.running = RunningCell(
            wanted.request,
            group.n_cells,
            wanted.cell,
            targets,
            now_s,
        )
        if group.n_ranks > 1:
            group.running.watch = CellWatch(group.n_ranks, targets, self._now.mono_s)
        for rank in targets:
            shows = rank == targets[0]
            call = RunCell(group.id, rank, group.n_cells, wanted.cell, shows)
            self._call(group, rank, call, None)

    def _look_into_cell(self, group: LiveGroup, running: RunningCell) -> None:
        """See what its ranks are at, once it takes long, and then again and again."""
        watch = running.watch
        if watch is None or watch.due_s is None or self._now.mono_s < watch.due_s:
            return
        watch.look()
        running.seen = {}
        for rank in running.waiting:
            self._call(group, rank, LookAtRank(group.id, rank, group.hosts), _CONTROL_TIMEOUT_S)

    def _seen_in_cell(
        self, group: LiveGroup, rank: int, answer: RankAnswer | JupyterDDLError
    ) -> None:
        running = group.running
        if running is None or running.watch is None:
            self._illegal(f"rank {rank} of group {group.id} is looked at unasked", group.id)
        running.seen[rank] = answer if isinstance(answer, RankSeen) else None
        if not any(isinstance(body, LookAtRank) for _, body in group.calls.values()):
            seen = {rank: each for rank, each in running.seen.items() if rank not in running.done}
            running.watch.looked(seen, self._now.mono_s)

    def _cell_answered(
        self, group: LiveGroup, rank: int, answer: RankAnswer | JupyterDDLError
    ) -> None:
        running = group.running
        if running is None:
            self._illegal(f"rank {rank} of group {group.id} ends a cell that is over", group.id)
        if not isinstance(answer, CellDone):
            # The watch of this rank tells how it ended, now.
            running.unclear[rank] = self._now.mono_s + _WATCH_LATE_S, end_of(answer)
            return
        running.done[rank] = answer
        status = group.statuses[rank]
        group.statuses[rank] = msgspec.structs.replace(status, log_end=answer.next_log_start)
        if len(running.done) < len(running.targets):
            return
        if any(done.is_cut_off for done in running.done.values()):
            # Its connections were cut: the process group is rebuilt, over the same store.
            running.rejoined = {}
            round_id = f"{group.id}-{self._new_token()}"
            for each in range(group.n_ranks):
                body = RejoinRank(group.id, each, round_id, _JOIN_TIMEOUT_S)
                self._call(group, each, body, _START_TIMEOUT_S)
        else:
            self._cell_over(group)

    def _rejoin_answered(
        self, group: LiveGroup, rank: int, answer: RankAnswer | JupyterDDLError
    ) -> None:
        running = group.running
        if running is None or running.rejoined is None:
            self._illegal(f"rank {rank} of group {group.id} rejoins unasked", group.id)
        error = answer if isinstance(answer, JupyterDDLError) else None
        if error is None and not isinstance(answer, JupyterDDLError):
            running.rejoined[rank] = answer
            if len(running.rejoined) < group.n_ranks:
                return
            found = (
                unexpected(group, each, known, RankReady)
                for each, known in sorted(running.rejoined.items())
            )
            error = next((each for each in found if each is not None), None)
        if error is not None:
            text = f"its process group could not be rebuilt: {error.message}"
            self._end(group, "failed", text)
            return
        note = (
            "the collective that hung was aborted and the process group rebuilt; variables "
            "are kept, wrap models in DDP again"
        )
        self._cell_over(group, note)

    def _cell_over(self, group: LiveGroup, note: str = "", lost: str = "") -> None:
        running = group.running
        assert running is not None
        group.running = None
        looks = [call for call, (_, body) in group.calls.items() if isinstance(body, LookAtRank)]
        self._forget_calls(group, looks)
        self._do(RecordCell(group.id, cell_event(running, lost, self._now)))
        if lost:
            self._do(Refuse(running.request, lost_error(group.id, lost)))
        else:
            self._do(Reply(running.request, running.result(group.id, note)))

    def _interrupt(self, group: LiveGroup, request: int) -> None:
        """Raise ``KeyboardInterrupt`` where a cell is still executed."""
        running = group.running
        waiting = () if running is None else running.waiting
        if running is None or not waiting:
            self._do(Reply(request))
            return
        group.interrupts[request] = {
            self._call(
                group, rank, InterruptRank(group.id, rank, running.number), _CONTROL_TIMEOUT_S
            )
            for rank in waiting
        }

    def _interrupt_answered(self, group: LiveGroup, call: int) -> None:
        for request, calls in tuple(group.interrupts.items()):
            calls.discard(call)
            if not calls:  # a rank that is lost ends the cell anyway
                del group.interrupts[request]
                self._do(Reply(request))

    def _rank_lost(self, group: LiveGroup, rank: int, reason: str) -> None:
        where = f"rank {rank} (pid {group.statuses[rank].pid} on {group.hosts[rank]})"
        self._end(group, "failed", f"{where} {reason}")

    # -- closing ---------------------------------------------------------------------------------

    def _close_wanted(self, request: int, group_id: str, why: str) -> None:
        for group in self._groups.values():
            if group.id == group_id and group.phase not in ("gpus", "record"):
                group.closers.append(request)
                if group.phase in ("starting", "joining"):
                    self._refuse_open(group, LaunchError(why))
                elif group.phase == "ready":
                    self._end(group, "complete", why)
                return
        self._do(Reply(request))

    def _close_all(self, request: int, why: str) -> None:
        self._closed_why = why
        self._closers.append(request)
        for group in tuple(self._groups.values()):
            if group.phase == "gpus":
                self._do(Refuse(group.request, LaunchError(why)))
                self._gone(group)
            elif group.phase in ("record", "starting", "joining"):
                if group.phase == "record":
                    group.failure = LaunchError(why)
                else:
                    self._refuse_open(group, LaunchError(why))
            elif group.phase == "ready":
                self._end(group, "complete", why)
        self._tell_closers()

    def _end(
        self,
        group: LiveGroup,
        state: Literal["complete", "failed"],
        reason: str,
        *,
        has_record: bool = True,
    ) -> None:
        """End the ranks; what they execute is killed, and the next cell is told ``reason``."""
        was_open = group.phase == "ready"
        group.phase, group.ending = "ending", (state, reason)
        if group.running is not None:
            self._cell_over(group, lost=reason)
        for request in group.interrupts:
            self._do(Reply(request))
        group.interrupts.clear()
        self._forget_calls(group, tuple(group.calls))
        if was_open:
            self._ended[group.id] = state, reason
            while len(self._ended) > _N_REMEMBERED:
                self._ended.popitem(last=False)
        if not has_record:
            self._leave_slots(group)
            self._gone(group)
            return
        for rank in range(group.n_ranks):
            self._call(group, rank, CloseRank(group.id, rank), _CONTROL_TIMEOUT_S)

    def _ranks_ended(self, group: LiveGroup) -> None:
        group.phase = "recording"
        self._leave_slots(group)
        self._do(CloseRecord(group.id, *group.ending))

    def _leave_slots(self, group: LiveGroup) -> None:
        self._slots.leave(group.id)
        self._do(WakeOthers())

    def _gone(self, group: LiveGroup) -> None:
        """Nothing is left of a group: whoever waited for that is told."""
        del self._groups[group.name]
        if group.failure is not None:
            self._do(Refuse(group.request, group.failure))
        for request in group.closers:
            self._do(Reply(request))
        self._unpark(group)
        self._tell_closers()

    def _unpark(self, group: LiveGroup) -> None:
        parked, group.parked = group.parked, []
        for wanted in parked:
            self._open(wanted)

    def _tell_closers(self) -> None:
        if not self._groups:
            closers, self._closers = self._closers, []
            for request in closers:
                self._do(Reply(request))


def _no_room(slots: SlotBook, n_ranks: int, gpus_per_rank: int) -> PlacementError:
    n_free, n_slots = slots.n_free, slots.n_slots
    holders = ", ".join(slots.holders())
    why = f", held by {holders}" if holders else ""
    if n_free >= n_ranks and gpus_per_rank:
        return PlacementError(
            f"a group of {n_ranks} ranks needs {n_ranks * gpus_per_rank} free GPUs; "
            f"{slots.gpus.n_free} of {slots.gpus.n_gpus} are free{why}; pass a smaller -n, "
            f"--gpus-per-rank 0, or wait"
        )
    if n_free >= n_ranks:
        why = ", and runs that have waited for longer get them first"
    return PlacementError(
        f"a group of {n_ranks} ranks needs {n_ranks} free slots; {n_free} of {n_slots} are free"
        f"{why}; pass a smaller -n, wait, or `%cluster scale N`"
    )
