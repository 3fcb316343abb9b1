"""What the events of its ranks mean for a rank group: pure, one object per round.

Ranks start and die together.  The first cause of a failure is the earliest failure that is no mere
consequence: when one rank dies, the others' collectives fail too, perhaps in the same millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from jupyter_ddl.events.messages import (
    AttemptFinished,
    AttemptStarted,
    Beat,
    Event,
    Failure,
    Outcome,
    RankEnded,
    RankEvent,
    RankStarted,
    RendezvousReady,
    Reported,
)
from jupyter_ddl.spec.assignment import Assignment

__all__ = ["Action", "GroupFold", "Join", "StopOthers"]

_CONSEQUENCES = (
    "connection closed by peer",
    "connection reset",
    "connection refused",
    "broken pipe",
    "gloo",
    "nccl",
    "timed out waiting",
    "socket timeout",
    "waited",
)
"""Words in the errors of ranks whose peers have gone."""


class Join(msgspec.Struct, frozen=True):
    """All ranks are ready: tell each where the others are."""

    addresses: tuple[str, ...]


class StopOthers(msgspec.Struct, frozen=True):
    """The round is over: end the ranks that still run."""

    ranks: tuple[int, ...]


Action: TypeAlias = Join | StopOthers


class GroupFold:
    """One round of one rank group."""

    def __init__(self, assignments: Sequence[Assignment], hosts: Sequence[str]) -> None:
        self._n_ranks = len(assignments)
        self._hosts = tuple(hosts)
        trial = assignments[0].trials[0]
        self._trial, self._attempt = trial.trial, trial.attempt
        self._ready: dict[int, str] = {}
        self._ended: dict[int, RankEnded] = {}
        self._values: dict[int, float | None] = {}
        self._stopping = False
        self._stopped_by: Outcome | None = None
        self._started_at_s: float | None = None
        self.last_beats: dict[int, Beat] = {}
        self.n_steps: dict[int, int] = {}
        self.over = False

    @property
    def running(self) -> tuple[int, ...]:
        """Ranks that have not ended."""
        return tuple(rank for rank in range(self._n_ranks) if rank not in self._ended)

    def add(self, rank: int, event: RankEvent) -> tuple[list[Event], list[Action]]:
        """Fold one event of one rank: what to record, and what to do."""
        if self.over:
            return [], []
        match event:
            case AttemptStarted():
                return self._started(rank, event), []
            case RendezvousReady():
                return [], self._is_ready(rank, event)
            case Beat():
                self.last_beats[rank] = event
                self.n_steps[rank] = event.n_steps
                return [], []
            case AttemptFinished():
                return self._rank_ended(rank, event)
            case Reported():
                self.n_steps[rank] = self.n_steps.get(rank, 0) + 1
                return [event], []
            case _:
                return [event], []

    def lost(self, rank: int, now_s: float) -> tuple[list[Event], list[Action]]:
        """The worker of a rank is gone, through no fault of the rank."""
        if self.over or rank in self._ended:
            return [], []
        event = AttemptFinished(self._trial, self._attempt, "evicted", now_s, 0.0)
        return self._rank_ended(rank, event)

    def _started(self, rank: int, event: AttemptStarted) -> list[Event]:
        events: list[Event] = []
        if self._started_at_s is None:
            self._started_at_s = event.at_s
            events.append(event)
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
        )
        return [*events, started]

    def _is_ready(self, rank: int, event: RendezvousReady) -> list[Action]:
        self._ready[rank] = f"{event.host}:{event.port}"
        if len(self._ready) < self._n_ranks:
            return []
        return [Join(tuple(self._ready[each] for each in range(self._n_ranks)))]

    def _rank_ended(self, rank: int, event: AttemptFinished) -> tuple[list[Event], list[Action]]:
        outcome: Outcome = event.outcome
        if self._stopping and outcome == "failed" and event.failure is not None:
            outcome = "cancelled" if event.failure.kind == "crash" else outcome
        ended = RankEnded(
            trial=self._trial,
            attempt=self._attempt,
            rank=rank,
            outcome=outcome,
            at_s=event.at_s,
            duration_s=event.duration_s,
            log_end=event.log_end,
            values_file=event.values_file,
            failure=event.failure,
            inline_value=event.inline_value,
            has_inline_value=event.has_inline_value,
        )
        self._ended[rank] = ended
        self._values[rank] = event.value
        if len(self._ended) == self._n_ranks:
            self.over = True
            return [ended, self._conclusion(event.at_s)], []
        if outcome == "complete" or self._stopping:
            return [ended], []
        self._stopping = True
        self._stopped_by = outcome
        return [ended], [StopOthers(self.running)]

    def _conclusion(self, at_s: float) -> AttemptFinished:
        first = self._ended[0]
        outcome, failure = self._verdict()
        begun = self._started_at_s if self._started_at_s is not None else at_s
        return AttemptFinished(
            trial=self._trial,
            attempt=self._attempt,
            outcome=outcome,
            at_s=at_s,
            duration_s=max(0.0, at_s - begun),
            value=self._values[0] if outcome in ("complete", "pruned") else None,
            log_end=first.log_end,
            values_file=first.values_file if outcome == "complete" else None,
            failure=failure,
            inline_value=first.inline_value,
            has_inline_value=first.has_inline_value and outcome == "complete",
        )

    def _verdict(self) -> tuple[Outcome, Failure | None]:
        ends = self._ended.values()
        if any(end.outcome == "evicted" for end in ends):
            return "evicted", None
        if self._stopped_by in ("pruned", "cancelled"):
            return self._stopped_by, None
        failed = [end for end in ends if end.outcome == "failed" and end.failure is not None]
        if failed:
            first = min(failed, key=lambda end: (is_consequence(end), end.at_s))
            return "failed", self._explained(first, len(failed) - 1)
        others = {end.outcome for end in ends} - {"complete"}
        return (others.pop() if others else "complete"), None

    def _explained(self, first: RankEnded, n_more: int) -> Failure | None:
        failure = first.failure
        if failure is None:
            return None
        more = f" ({n_more} more ranks failed)" if n_more else ""
        return msgspec.structs.replace(
            failure, message=f"rank {first.rank}: {failure.message}{more}"
        )


def is_consequence(end: RankEnded) -> bool:
    """Whether a rank seems to have failed only because another one was gone."""
    failure = end.failure
    if failure is None or failure.kind != "exception":
        return False
    text = f"{failure.type_name} {failure.message}".lower()
    return any(word in text for word in _CONSEQUENCES)
