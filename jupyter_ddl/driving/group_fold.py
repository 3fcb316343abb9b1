"""What the events of one round's ranks mean: what is to be recorded, and what is to be done.  Pure.

Ranks start and die together.  The first cause of a failure is the earliest failure that is no mere
consequence: when one rank dies, the others' collectives fail too, perhaps in the same millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from jupyter_ddl.driving.lives import Lives
from jupyter_ddl.driving.round_verdict import conclusion_of, is_consequence, loss_of
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    GroupSettled,
    HangVerdict,
    Notice,
    Outcome,
    RankEnded,
    RankEvent,
    RankStarted,
    RendezvousReady,
    Reported,
    Unrecorded,
    ValueKept,
    WorkerLeaving,
)
from jupyter_ddl.protocol.group import ranks_label

__all__ = [
    "DEAD_ROUND_GRACE_S",
    "Action",
    "AskToLeave",
    "AwaitCause",
    "AwaitReturned",
    "GroupFold",
    "Join",
    "StopOthers",
    "TellMembers",
]

DEAD_ROUND_GRACE_S = 0.2
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
    grace_s: float = DEAD_ROUND_GRACE_S


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
            begun = self._starts.get(rank)
            text = self._lives.lose(ended, 0.0 if begun is None else event.at_s - begun.at_s)
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

    def _stop_others(self, grace_s: float = DEAD_ROUND_GRACE_S) -> list[Action]:
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
