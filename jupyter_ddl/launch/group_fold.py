"""What the events of its ranks mean for a rank group: pure, one object per round.

Ranks start and die together.  The first cause of a failure is the earliest failure that is no mere
consequence: when one rank dies, the others' collectives fail too, perhaps in the same millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from jupyter_ddl.launch.group_verdict import conclusion_of, is_consequence, loss_of
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
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

__all__ = ["Action", "AskToLeave", "AwaitCause", "GroupFold", "Join", "StopOthers"]

_DEAD_ROUND_GRACE_S = 0.2
"""Nothing of a dead round is worth keeping; most of its ranks are in a C call anyway."""


class Join(msgspec.Struct, frozen=True):
    """All ranks are ready: tell each where the others are."""

    addresses: tuple[str, ...]


class StopOthers(msgspec.Struct, frozen=True):
    """The round is over: end the ranks that still run."""

    ranks: tuple[int, ...]
    grace_s: float = _DEAD_ROUND_GRACE_S


class AwaitCause(msgspec.Struct, frozen=True):
    """A rank failed as a consequence of something unknown: call ``cause_is_late`` in a moment."""


class AskToLeave(msgspec.Struct, frozen=True):
    """A worker of the group goes: the group is to leave at its next checkpoint."""


Action: TypeAlias = Join | StopOthers | AwaitCause | AskToLeave


class GroupFold:
    """One round of one rank group."""

    def __init__(
        self, assignments: Sequence[Assignment], hosts: Sequence[str], devices: Sequence[str] = ()
    ) -> None:
        self._n_ranks = len(assignments)
        self._hosts = tuple(hosts)
        self._devices = tuple(devices) or ("cpu",) * len(assignments)
        trial = assignments[0].trials[0]
        self._trial, self._attempt = trial.trial, trial.attempt
        self._ready: dict[int, str] = {}
        self._held: list[Event] = []
        self._starts: dict[int, AttemptStarted] = {}
        self._begun: AttemptStarted | None = None
        self._log_rank = 0
        self._ends: dict[int, RankEnded] = {}
        self._values: dict[int, float | None] = {}
        self._kept: dict[int, str] = {}
        self._told: set[int] = set()
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
            case ValueKept():
                self._kept[rank] = event.why
                return [], []
            case WorkerLeaving():
                return [], [AskToLeave()]
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
        # Where the group was being ended anyway, the loss of a rank is no eviction.
        over = rank in self._told and self._cause_is_known
        outcome: Outcome = "cancelled" if over else "evicted"
        failure = None if over else Failure("launch", "WorkerLost", why)
        event = AttemptFinished(self._trial, self._attempt, outcome, now_s, 0.0, failure=failure)
        return self._rank_ended(rank, event)

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
        )
        return [*first, *self._recorded([started])]

    def _is_ready(self, rank: int, event: RendezvousReady) -> list[Action]:
        self._ready[rank] = f"{event.host}:{event.port}"
        if len(self._ready) < self._n_ranks:
            return []
        return [Join(tuple(self._ready[each] for each in range(self._n_ranks)))]

    def _rank_ended(self, rank: int, event: AttemptFinished) -> tuple[list[Event], list[Action]]:
        ended = self._end_of(rank, event)
        self._ends[rank] = ended
        self._values[rank] = event.value
        events: list[Event] = []
        if self._begun is None and self._starts:
            # Rank 0 may never come; what the others did is to be told all the same.
            events += self._begin(min(self._starts))
        events += self._recorded([ended]) if rank in self._starts else []
        if len(self._ends) == self._n_ranks:
            self.over = True
            end = self._conclusion(event.at_s)
            return [*events, *self._values_kept(end), end], []
        return events, self._after_end(ended)

    def _end_of(self, rank: int, event: AttemptFinished) -> RankEnded:
        outcome = event.outcome
        crashed = event.failure is not None and event.failure.kind == "crash"
        if rank in self._told and outcome == "failed" and crashed:
            outcome = "cancelled"
        failure = event.failure if outcome == "failed" else None
        if outcome == "evicted":
            why = "it lost its worker" if event.failure is None else event.failure.message
            failure = loss_of(rank, why, have_met=len(self._ready) == self._n_ranks)
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
        if ended.outcome == "complete" or self._stopping:
            return []
        if is_consequence(ended):
            # What it is a consequence of may be told later: ending the others now could hide it.
            return [AwaitCause()]
        return self._stop_others()

    def _stop_others(self, grace_s: float = _DEAD_ROUND_GRACE_S) -> list[Action]:
        self._stopping = self._cause_is_known = True
        self._told.update(self.running)
        return [StopOthers(self.running, grace_s)]

    def _values_kept(self, end: AttemptFinished) -> list[Event]:
        """One sentence about the cell's values that stay on their ranks, which is rarely on one."""
        if not self._kept or end.outcome != "complete":
            return []
        text = f"the cell's value on {ranks_label(self._kept)} did not come home: "
        return [Notice(end.at_s, text + self._kept[min(self._kept)], "warning")]

    def _conclusion(self, at_s: float) -> AttemptFinished:
        ends = [self._ends[rank] for rank in range(self._n_ranks)]
        outcome, failure = conclusion_of(ends, frozenset(self._told), self._hang)
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
