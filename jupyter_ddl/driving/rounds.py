"""One round of a rank group: what the events of its ranks mean, and what is to be done.  Pure.

Ranks start and die together.  The first cause of a failure is the earliest failure that is no mere
consequence: when one rank dies, the others' collectives fail too, perhaps in the same millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.driving.hangs import Blame, StepWatch, whereabouts
from jupyter_ddl.driving.lives import Lives
from jupyter_ddl.driving.machine import Instruction, Now, Signal, WriteStacks, earliest
from jupyter_ddl.driving.round_verdict import conclusion_of, is_consequence, loss_of
from jupyter_ddl.protocol.assignment import (
    Assignment,
    Control,
    DumpStacks,
    StopTrial,
    StopWhen,
    TrialAssignment,
)
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    GroupSettled,
    HangVerdict,
    Notice,
    Outcome,
    Probe,
    RankEnded,
    RankEvent,
    RankStarted,
    RendezvousReady,
    Reported,
    Unrecorded,
    ValueKept,
    WorkerLeaving,
)
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged, ranks_label

__all__ = [
    "Action",
    "AskToLeave",
    "AwaitCause",
    "GroupFold",
    "Join",
    "Round",
    "StopOthers",
    "TellMembers",
]

_CAUSE_TIMEOUT_S = 0.7
"""How long a failure that looks like a consequence waits for its cause: the end of a killed
process is noticed later than the connections that it closes."""
_END_TIMEOUT_S = 15.0
"""Within it a rank that was told to end is gone, or given up with its worker."""
_PROBE_TIMEOUT_S = 6.0
_DEAD_ROUND_GRACE_S = 0.2
"""Nothing of a dead round is worth keeping; most of its ranks are in a C call anyway."""


class Join(msgspec.Struct, frozen=True):
    """All ranks are ready: tell each where the others are."""

    addresses: tuple[str, ...]
    store: str = ""
    rank: int | None = None
    """Only this one, which was started again; None: all."""


class StopOthers(msgspec.Struct, frozen=True):
    """The round is over: end the ranks that still run."""

    ranks: tuple[int, ...]
    grace_s: float = _DEAD_ROUND_GRACE_S


class AwaitCause(msgspec.Struct, frozen=True):
    """A rank failed as a consequence of something unknown: call ``cause_is_late`` in a moment."""


class AskToLeave(msgspec.Struct, frozen=True):
    """A worker of the group goes: the group is to leave at its next checkpoint."""


class TellMembers(msgspec.Struct, frozen=True):
    """A rank is there no more, or again: tell the others which are there."""

    number: int
    lives: dict[int, int]


class AwaitReturned(msgspec.Struct, frozen=True):
    """All that count are through, and others are not: call ``dismiss_returned`` in a while."""

    patience_s: float


Action: TypeAlias = Join | StopOthers | AwaitCause | AskToLeave | TellMembers | AwaitReturned


class GroupFold:
    """One round of one rank group."""

    def __init__(
        self, assignments: Sequence[Assignment], hosts: Sequence[str], devices: Sequence[str] = ()
    ) -> None:
        self._n_ranks = len(assignments)
        self._hosts = list(hosts)
        self._devices = tuple(devices) or ("cpu",) * len(assignments)
        trial = assignments[0].trials[0]
        self._trial, self._attempt = trial.trial, trial.attempt
        self._ready: dict[int, RendezvousReady] = {}
        self._held: list[Event] = []
        self._starts: dict[int, AttemptStarted] = {}
        self._begun: AttemptStarted | None = None
        self._log_rank = 0
        self._ends: dict[int, RankEnded] = {}
        self._values: dict[int, float | None] = {}
        self._kept: dict[int, str] = {}
        self._told: set[int] = set()
        self._missed: set[int] = set()
        place = assignments[0].place
        self._lives = Lives(place, len(assignments))
        for rank in () if place is None else place.absent:
            self._ends[rank] = RankEnded(
                self._trial, self._attempt, rank, "cancelled", 0.0, 0.0, others_go_on=True
            )
        self._n_first = self._n_ranks - len(self._ends)
        self._joined: Join | None = None
        self._hang: HangVerdict | None = None
        self._stopping = False
        self._cause_is_known = False
        self.over = False

    @property
    def running(self) -> tuple[int, ...]:
        """Ranks that have not ended."""
        return tuple(rank for rank in range(self._n_ranks) if rank not in self._ends)

    def add(self, rank: int, event: RankEvent) -> tuple[list[Event], list[Action]]:
        """Fold one event of one rank: what to record, and what to do."""
        if self.over:
            return [], []
        match event:
            case Reported():  # the commonest
                return self._recorded([event]), []
            case AttemptStarted():
                return self._started(rank, event), []
            case RendezvousReady():
                return [], self._is_ready(rank, event)
            case GroupSettled():
                self._lives.settle()
                return [], []
            case ValueKept():
                self._kept[rank] = event.why
                return [], []
            case WorkerLeaving():
                # The others of a group that goes on without it need not begin anew.
                return [], [] if rank in self._lives.dispensable else [AskToLeave()]
            case AttemptFinished():
                return self._rank_ended(rank, event)
            case _ if isinstance(event, Unrecorded):
                return [], []
            case _:
                return self._recorded([event]), []

    def lost(
        self, rank: int, now_s: float, why: str = "its worker is gone"
    ) -> tuple[list[Event], list[Action]]:
        """The worker of a rank is gone, through no fault of the rank."""
        if self.over or rank in self._ends:
            return [], []
        # Where the group was being ended anyway, the loss of a rank is not an eviction.
        over = rank in self._told and self._cause_is_known
        outcome: Outcome = "cancelled" if over else "evicted"
        failure = None if over else Failure("launch", "WorkerLost", why)
        event = AttemptFinished(self._trial, self._attempt, outcome, now_s, 0.0, failure=failure)
        return self._rank_ended(rank, event)

    def begin_again(self, rank: int) -> int | None:
        """Start a rank that was lost once more, as its process of that number; None: do not."""
        is_over = self.over or self._stopping or self._is_finishing
        if is_over or not self._lives.is_lost(rank):
            return None
        life = self._lives.begin_again(rank)
        if life is not None:
            del self._ends[rank]
            self._starts.pop(rank, None)
        return life

    def may_join(self, rank: int) -> bool:
        """Whether a rank that is not there would be taken in."""
        is_over = self.over or self._stopping or self._is_finishing
        return not is_over and rank in self._lives.may_join

    def move(self, rank: int, host: str) -> None:
        """A rank that joins is on another host."""
        self._hosts[rank] = host

    def not_back(self, rank: int) -> list[Action]:
        """A rank that was lost is not started again: the round ends if the others wait for it."""
        if self.over or self._stopping or self._is_finishing or not self._lives.is_awaited(rank):
            return []
        self._missed.add(rank)
        return self._stop_others()

    @property
    def _is_finishing(self) -> bool:
        """Whether all that ever count are through with the cell."""
        return self._lives.is_over(self._complete)

    @property
    def _complete(self) -> set[int]:
        return {rank for rank, end in self._ends.items() if end.outcome == "complete"}

    def hang(self, verdict: HangVerdict) -> tuple[list[Event], list[Action]]:
        """No rank makes steps any more, and this is why: end them at once."""
        if self.over or self._stopping:
            return [], []
        self._hang = verdict
        return self._recorded([verdict]), self._stop_others(grace_s=0.0)

    def cause_is_late(self) -> list[Action]:
        """No cause came for a failure that looked like a consequence: the round is over."""
        if self.over or self._stopping:
            return []
        actions = self._stop_others()
        self._cause_is_known = False
        return actions

    def _recorded(self, events: list[Event]) -> list[Event]:
        """Hold events back until the attempt has begun: it begins with rank 0, if that comes."""
        if self._begun is not None:
            return events
        self._held += events
        return []

    def _begin(self, rank: int) -> list[Event]:
        self._begun = self._starts[rank]
        self._log_rank = rank
        events, self._held = [self._begun, *self._held], []
        return events

    def _started(self, rank: int, event: AttemptStarted) -> list[Event]:
        self._starts[rank] = event
        first = self._begin(rank) if rank == 0 and self._begun is None else []
        started = RankStarted(
            trial=event.trial,
            attempt=event.attempt,
            rank=rank,
            at_s=event.at_s,
            worker=event.worker,
            host=self._hosts[rank],
            pid=event.pid,
            log=event.log,
            log_start=event.log_start,
            device=self._devices[rank],
            world_size=self._n_ranks,
            life=self._lives.there.get(rank, 1),
        )
        return [*first, *self._recorded([started])]

    def _is_ready(self, rank: int, event: RendezvousReady) -> list[Action]:
        if self._joined is not None:
            # One that was started again: it is told where the others are, and they of it.
            return [msgspec.structs.replace(self._joined, rank=rank), self._members()]
        self._ready[rank] = event
        if len(self._ready) < self._n_first:
            return []
        ready = map(self._ready.get, range(self._n_ranks))
        addresses = tuple(f"{each.host}:{each.port}" if each else "" for each in ready)
        self._joined = Join(addresses, self._ready[0].store)
        return [self._joined]

    def _members(self) -> TellMembers:
        return TellMembers(self._lives.next_number(), self._lives.there)

    def _rank_ended(self, rank: int, event: AttemptFinished) -> tuple[list[Event], list[Action]]:
        ended = self._end_of(rank, event)
        self._ends[rank] = ended
        self._values[rank] = event.value
        events: list[Event] = []
        if self._begun is None and self._starts:
            # Rank 0 may never come; what the others did is to be told all the same.
            events += self._begin(min(self._starts))
        told: list[Event] = []
        if self._is_outlived(ended):
            self._ends[rank] = ended = msgspec.structs.replace(ended, others_go_on=True)
            text = self._lives.lose(ended)
            if rank not in self._told:
                told = self._recorded([Notice(event.at_s, text)])
        events += self._recorded([ended]) if rank in self._starts else []
        events += told
        if len(self._ends) == self._n_ranks:
            self.over = True
            end = self._conclusion(event.at_s)
            return [*events, *self._values_kept(end), end], []
        return events, self._after_end(ended)

    def _is_outlived(self, ended: RankEnded) -> bool:
        if self._joined is None or self._stopping:
            return False
        return self._lives.goes_on_without(ended)

    def _end_of(self, rank: int, event: AttemptFinished) -> RankEnded:
        outcome = event.outcome
        crashed = event.failure is not None and event.failure.kind == "crash"
        if rank in self._told and outcome == "failed" and crashed:
            outcome = "cancelled"
        lacks_blob = event.failure is not None and event.failure.kind == "blob"
        failure = event.failure if outcome == "failed" or lacks_blob else None
        if outcome == "evicted" and not lacks_blob:
            why = "it lost its worker" if event.failure is None else event.failure.message
            failure = loss_of(rank, why, have_met=self._joined is not None)
        return RankEnded(
            trial=self._trial,
            attempt=self._attempt,
            rank=rank,
            outcome=outcome,
            at_s=event.at_s,
            duration_s=event.duration_s,
            log_end=event.log_end,
            values_file=event.values_file,
            failure=failure,
            inline_value=event.inline_value,
            has_inline_value=event.has_inline_value,
        )

    def _after_end(self, ended: RankEnded) -> list[Action]:
        if self._stopping:
            return []
        if ended.others_go_on:
            return [self._members(), *self._dismiss()]
        if ended.outcome == "complete":
            return self._dismiss()
        if is_consequence(ended):
            # What it is a consequence of may be told later: ending the others now could hide it.
            return [AwaitCause()]
        return self._stop_others()

    def _dismiss(self) -> list[Action]:
        """The others are through: ranks that were started again have their last moment."""
        if not self._is_finishing or not self._returned:
            return []
        return [AwaitReturned(self._lives.patience_s)]

    def dismiss_returned(self) -> list[Action]:
        """End ranks that were started again and still go on when the others are through."""
        late = self._returned
        self._told.update(late)
        return [StopOthers(late)] if late and not self._stopping else []

    @property
    def _returned(self) -> tuple[int, ...]:
        return tuple(rank for rank in self._lives.returned() if rank not in self._ends)

    def _stop_others(self, grace_s: float = _DEAD_ROUND_GRACE_S) -> list[Action]:
        self._stopping = self._cause_is_known = True
        self._told.update(self.running)
        return [StopOthers(self.running, grace_s)]

    def _values_kept(self, end: AttemptFinished) -> list[Event]:
        """One sentence about the cell's values that stay on their ranks, which is rarely on one."""
        if not self._kept or end.outcome != "complete":
            return []
        text = f"the cell's value on {ranks_label(self._kept)} did not come back: "
        return [Notice(end.at_s, text + self._kept[min(self._kept)])]

    def _conclusion(self, at_s: float) -> AttemptFinished:
        ends = [self._ends[rank] for rank in range(self._n_ranks)]
        outcome, failure = conclusion_of(
            self._that_count(ends),
            frozenset(self._told),
            self._hang,
            is_apart=len(set(self._hosts)) > 1,
        )
        if outcome == "failed" and not self._starts:
            # Nobody has heard of any rank: that is not a failure of the code.
            why = "none of its ranks ever reported"
            outcome, failure = "evicted", loss_of(0, why, have_met=False)
        elif self._hang is not None and self._hang.rank not in self._starts:
            # The others waited for one that its worker never began: nor is that.
            outcome = "evicted"
            failure = loss_of(self._hang.rank, self._hang.text, have_met=False)
        first = ends[0]
        is_complete = outcome == "complete"
        begun_s = at_s if self._begun is None else self._begun.at_s
        return AttemptFinished(
            trial=self._trial,
            attempt=self._attempt,
            outcome=outcome,
            at_s=at_s,
            duration_s=max(0.0, at_s - begun_s),
            value=self._values[0] if outcome in ("complete", "pruned") else None,
            log_end=ends[self._log_rank].log_end,
            values_file=first.values_file if is_complete else None,
            failure=failure,
            inline_value=first.inline_value if is_complete else None,
            has_inline_value=first.has_inline_value and is_complete,
        )

    def _that_count(self, ends: Sequence[RankEnded]) -> Sequence[RankEnded]:
        """Without those without which the others went on, unless these failed of it after all."""
        others = [end for end in ends if not end.others_go_on or end.rank in self._missed]
        failed = [end for end in others if end.outcome == "failed"]
        return ends if failed and all(map(is_consequence, failed)) else others


class Round:
    """One round from its first message to its last, with its deadlines.

    The methods return what is to be recorded; the group's ``AttemptFinished`` is the last of it.

    Parameters
    ----------
    workers, hosts
        Of each rank; empty for those that are absent.
    hang_timeout_s : float, optional
        See :class:`~jupyter_ddl.driving.hangs.StepWatch`.
    devices
        What to call the device of each rank; empty: all are CPUs.
    do, write_stacks : callable
        Take what is to be done.  :meth:`stacks_written` follows on ``write_stacks``.
    start_again : callable
        Takes a rank that is lost and the number of its next process, and has it started.
    give_up : callable
        Waits for a rank's assignment no longer, and has its worker ended; :meth:`rank_ended`
        follows.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        workers: Sequence[str],
        hosts: Sequence[str],
        now: Now,
        *,
        do: Callable[[Instruction], None],
        write_stacks: Callable[[WriteStacks], None],
        give_up: Callable[[int], None],
        start_again: Callable[[int, int], None] = lambda _rank, _life: None,
        hang_timeout_s: float | None = None,
        devices: Sequence[str] = (),
    ) -> None:
        self._assignments = tuple(assignments)
        self._workers = list(workers)
        self._hosts = list(hosts)
        self._empty = {rank for rank, worker in enumerate(workers) if not worker}
        """Ranks without a worker: there was none, or it is lost."""
        self._do = do
        self._write_stacks = write_stacks
        self._give_up = give_up
        self._start_again = start_again
        self._fold = GroupFold(assignments, hosts, devices)
        self._epoch_s = now.wall_s - now.mono_s
        self._steps = StepWatch(len(workers), hang_timeout_s, now.mono_s)
        for rank in self._empty:
            self._steps.ended(rank)
        self._cause_due_s: float | None = None
        self._dismiss_due_s: float | None = None
        self._give_up_s: dict[int, float] = {}
        self._abandoned: set[int] = set()
        self._probes: dict[int, Probe] | None = None  # while the ranks are looked at
        self._probes_due_s: float | None = None
        self._only_tells = False
        self._blame: Blame | None = None
        self.may_start_again = True
        """Whether ranks without which the others go on are started again; not while it ends."""
        self._due_s: float | None = None
        self._has_changed = True
        """Since the deadline was worked out: every event of any group asks for it."""

    @property
    def due_s(self) -> float | None:
        """When :meth:`woken` has something to do."""
        if self._has_changed:
            self._due_s, self._has_changed = self._earliest_s(), False
        return self._due_s

    def _earliest_s(self) -> float | None:
        if self._fold.over:
            return None
        hang_due_s = late_due_s = None
        if self._blame is None:
            hang_due_s = self._steps.due_s if self._probes is None else self._probes_due_s
            late_due_s = self._steps.late_due_s
        own_due_s = earliest(self._cause_due_s, self._dismiss_due_s)
        return earliest(own_due_s, *self._give_up_s.values(), hang_due_s, late_due_s)

    def liveness(self) -> dict[int, tuple[str, float]]:
        """Phase of each running rank, and the Unix seconds at which it last moved."""
        moved = self._steps.moved()
        return {rank: (phase, at_s + self._epoch_s) for rank, (phase, at_s) in moved.items()}

    def arrived(self, rank: int, events: Sequence[RankEvent], now: Now) -> list[Event]:
        """A rank, or its worker, has sent events."""
        self._has_changed = True
        recorded: list[Event] = []
        for event in events:
            if not isinstance(event, Probe):
                self._steps.observe(rank, event, now.mono_s)
            elif self._probes is not None:
                self._probes[rank] = event
            if isinstance(event, AttemptStarted) and rank in self._give_up_s:
                # What told it to end came before what told it to begin, and found nobody.
                self._stop(rank, "cancelled", "now", _DEAD_ROUND_GRACE_S)
            found, actions = self._fold.add(rank, event)
            recorded += found
            self._act(actions, now)
        return [*recorded, *self._judge(now)]

    def rank_ended(self, rank: int, lost: str, now: Now) -> list[Event]:
        """The assignment of a rank is over; a rank that has told of no end is lost."""
        self._has_changed = True
        self._give_up_s.pop(rank, None)
        # One that was never executed is to the group as lost as any other.
        why = lost or "its worker did not begin it"
        if rank in self._abandoned:
            why = "it did not end when told to"
        recorded, actions = self._fold.lost(rank, now.wall_s, why)
        self._act(actions, now)
        self._steps.ended(rank)
        may_start = not lost and self.may_start_again
        life = self._fold.begin_again(rank) if may_start else None
        if life is None:
            self._act(self._fold.not_back(rank), now)
        else:
            self._steps.begin_again(rank)
            self._start_again(rank, life)
        if lost:
            self._empty.add(rank)
        return recorded

    @property
    def vacant(self) -> tuple[int, ...]:
        """Ranks without a worker that could join the others if they had one."""
        if not self.may_start_again:
            return ()
        return tuple(filter(self._fold.may_join, sorted(self._empty)))

    def give_worker(self, rank: int, worker: str, host: str, now: Now) -> tuple[int, list[Event]]:
        """A vacant rank is to be started at a worker: as its process of which number."""
        self._has_changed = True
        is_new = not self._workers[rank]
        self._empty.remove(rank)
        self._workers[rank], self._hosts[rank] = worker, host
        self._fold.move(rank, host)
        life = self._fold.begin_again(rank)
        assert life is not None, "asked for a rank that may not join"
        self._steps.begin_again(rank)
        what = "a slot is free" if is_new else "there is another worker"
        text = f"{what}: rank {rank} is started, and joins the others"
        return life, [Notice(now.wall_s, text)]

    def woken(self, now: Now) -> list[Event]:
        """See which deadlines have passed."""
        now_s = now.mono_s
        if self.due_s is None or now_s < self.due_s:
            return []
        self._has_changed = True
        if self._cause_due_s is not None and now_s >= self._cause_due_s:
            self._cause_due_s = None
            self._act(self._fold.cause_is_late(), now)
        if self._dismiss_due_s is not None and now_s >= self._dismiss_due_s:
            self._dismiss_due_s = None
            self._act(self._fold.dismiss_returned(), now)
        for rank in [rank for rank, due_s in self._give_up_s.items() if now_s >= due_s]:
            del self._give_up_s[rank]
            self._abandoned.add(rank)
            self._give_up(rank)
        if self._fold.over or self._blame is not None:
            return []
        is_late = self._steps.is_late(now_s)
        if self._probes is None and (is_late or self._steps.is_due(now_s)):
            self._probes, self._probes_due_s = {}, now_s + _PROBE_TIMEOUT_S
            self._only_tells = is_late
            trial = self._trial
            dump = DumpStacks(self._run_id, trial.trial, trial.attempt)
            for worker in dict.fromkeys(self._workers[r] for r in sorted(self._steps.running)):
                self._signal(worker, dump)
        return self._judge(now)

    def stacks_written(self, now: Now) -> list[Event]:
        """Say who hangs, now that whoever reads it can look at the stacks."""
        if self._blame is None:
            return []
        self._has_changed = True
        verdict = HangVerdict(
            trial=self._trial.trial,
            attempt=self._trial.attempt,
            rank=self._blame.rank,
            at_s=now.wall_s,
            text=self._blame.text,
            line=self._blame.line,
            is_outside=self._blame.is_outside,
            stacks_file=self._stacks_dir,
        )
        recorded, actions = self._fold.hang(verdict)
        self._act(actions, now)
        return recorded

    def ask_to_leave(self) -> None:
        """Have rank 0 leave at its next checkpoint, and the others with it, to be restarted.

        Were all asked, each would leave at another step, and one could wait for another.
        """
        self._stop(0, "moved", "next_checkpoint")

    @property
    def _run_id(self) -> str:
        return self._assignments[0].run_id

    @property
    def _trial(self) -> TrialAssignment:
        return self._assignments[0].trials[0]

    @property
    def _stacks_dir(self) -> str:
        return f"stacks/{self._trial.trial}-a{self._trial.attempt}"

    def _judge(self, now: Now) -> list[Event]:
        """Who hangs, once all ranks that run were looked at, or had their time to be."""
        probes = self._probes
        if probes is None or self._probes_due_s is None:
            return []
        if self._steps.running - probes.keys() and now.mono_s < self._probes_due_s:
            return []
        self._probes = self._probes_due_s = None
        if self._only_tells:
            are_in_cell = self._steps.are_in_cell
            text = self._steps.who_waits(probes) if are_in_cell else self._absent(probes)
            if not (text and are_in_cell):
                self._steps.look_again(now.mono_s)
            return [Notice(now.wall_s, text)] if text else []
        self._blame = self._steps.judge(probes, now.mono_s)
        if self._blame is not None:
            texts = {rank: probe.stacks for rank, probe in probes.items()}
            self._write_stacks(WriteStacks(self._stacks_dir, texts))
        return []

    def _absent(self, probes: dict[int, Probe]) -> str:
        where = {
            rank: whereabouts(probe.state, probe.stacks, self._hosts[rank])
            for rank, probe in probes.items()
        }
        return self._steps.absent(where)

    def _act(self, actions: Sequence[Action], now: Now) -> None:
        for action in actions:
            match action:
                case Join(addresses=addresses, store=store, rank=which):
                    trial = self._trial
                    join = JoinGroup(self._run_id, trial.trial, trial.attempt, addresses, store)
                    first = [n for n, worker in enumerate(self._workers) if worker]
                    self._signal_all(join, first if which is None else [which])
                case TellMembers(number=number, lives=lives):
                    trial = self._trial
                    who = (self._run_id, trial.trial, trial.attempt)
                    self._signal_all(MembersChanged(*who, number, lives), lives)
                case StopOthers(ranks=ranks, grace_s=grace_s):
                    for rank in ranks:
                        self._stop(rank, "cancelled", "now", grace_s)
                        self._give_up_s.setdefault(rank, now.mono_s + _END_TIMEOUT_S)
                case AwaitCause():
                    due_s = now.mono_s + _CAUSE_TIMEOUT_S
                    self._cause_due_s = earliest(self._cause_due_s, due_s)
                case AskToLeave():
                    self.ask_to_leave()
                case AwaitReturned(patience_s=0.0):
                    self._act(self._fold.dismiss_returned(), now)
                case AwaitReturned(patience_s=patience_s):
                    self._dismiss_due_s = earliest(self._dismiss_due_s, now.mono_s + patience_s)

    def _stop(
        self,
        rank: int,
        reason: Literal["cancelled", "moved"],
        when: StopWhen | Literal["next_checkpoint"],
        grace_s: float | None = None,
    ) -> None:
        trial = self._trial
        stop = StopTrial(self._run_id, trial.trial, trial.attempt, reason, when, rank, grace_s)
        self._signal(self._workers[rank], stop)

    def _signal_all(self, control: Control, ranks: Iterable[int]) -> None:
        for worker in dict.fromkeys(self._workers[rank] for rank in ranks):
            self._signal(worker, control)

    def _signal(self, worker: str, control: Control) -> None:
        self._do(Signal(worker, (control,)))
