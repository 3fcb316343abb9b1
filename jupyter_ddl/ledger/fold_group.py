"""Folds what happens to rank groups: who runs where, who reported what, why rounds ended."""

from __future__ import annotations

import re
from sys import intern

from jupyter_ddl.ledger.run_state import (
    FailedRound,
    LastReport,
    RankGroupState,
    RunState,
    TrialState,
)
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    CheckpointSaved,
    Failure,
    HangVerdict,
    PipelineTimed,
    RankEnded,
    RankStarted,
    Reported,
    StalenessCounted,
    StepsTimed,
)
from jupyter_ddl.protocol.snapshot import RestartRow

__all__ = [
    "CUT_OFF",
    "NEVER_MET",
    "checkpoint_saved",
    "fails_again",
    "forget_ended",
    "hang_verdict",
    "rank_ended",
    "rank_reported",
    "rank_started",
    "round_ended",
    "round_started",
    "steps_timed",
    "words_of",
]

_MAX_CAUSE = 200

NEVER_MET = "NeverMet"
"""Type name of the failure of a round that was lost before all ranks were there."""

CUT_OFF = "CutOff"
"""Type name of the failure of a round whose hosts have lost each other."""

_OF_THE_CODE = ("exception", "import", "metric", "values")
"""Kinds of failure that another round repeats, unless it is one of these types."""
_OF_THE_WORLD = re.compile(r"Connect|Network|Timeout|Store|URLError|HTTPError|gaierror|LaunchError")
_WHO = re.compile(r"^rank \d+: | \(\d+ more ranks? failed\)")
"""What the verdict adds to a message; which rank came first is chance."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
"""A cell's own message may name the rank, or an object's address."""


def rank_started(state: RunState, event: RankStarted) -> None:
    """A new round begins with its first rank's word: those of the round before are history."""
    trial = state.trials.get(event.trial)
    if trial is None or trial.attempt != event.attempt:
        state.n_late += 1
        return
    ranks = state.ranks.get(event.trial)
    if ranks is None or ranks.attempt != event.attempt:
        state.ranks[event.trial] = ranks = RankGroupState(event.attempt)
    ranks.started[event.rank] = event
    if event.life > 1:
        # What its process before has told is counted, and this one counts from nothing.
        ranks.ended.pop(event.rank, None)
        ranks.steps.pop(event.rank, None)


def rank_ended(state: RunState, event: RankEnded) -> None:
    """A rank of the current round is over."""
    ranks = state.ranks.get(event.trial)
    if ranks is None or ranks.attempt != event.attempt:
        state.n_late += 1
        return
    ranks.ended[event.rank] = event


def steps_timed(state: RunState, event: StepsTimed) -> None:
    """Keep a rank's sums; later ones hold the earlier."""
    ranks = state.ranks.get(event.trial)
    if ranks is None and event.trial in state.trials:
        return  # a trial on one rank: who asks for it reads the record
    if ranks is None or ranks.attempt != event.attempt or event.rank not in ranks.started:
        state.n_late += 1
        return
    before = ranks.steps.get(event.rank)
    ranks.steps[event.rank] = event
    if event.bytes_sent is not None and _is_ddp(state):
        told = 0 if before is None else before.bytes_sent or 0
        state.group.bytes_sent = (state.group.bytes_sent or 0) + event.bytes_sent - told


def pipeline_timed(state: RunState, event: PipelineTimed) -> None:
    """Keep the latest batch of a pipeline that was measured."""
    ranks = state.ranks.get(event.trial)
    if ranks is None or ranks.attempt != event.attempt:
        state.n_late += 1
        return
    ranks.pipeline = event.times


def staleness_counted(state: RunState, event: StalenessCounted) -> None:
    """Keep a parameter server's counts; later ones hold the earlier."""
    ranks = state.ranks.get(event.trial)
    if ranks is None or ranks.attempt != event.attempt:
        state.n_late += 1
        return
    server = event.counted.server
    begun = ranks.started.get(server)
    ranks.staleness[server, 1 if begun is None else begun.life] = event.counted


def rank_reported(state: RunState, event: Reported) -> None:
    """Keep a rank's latest report, and of a ddp run rank 0's series."""
    ranks = state.ranks.get(event.trial)
    if ranks is None or ranks.attempt != event.attempt:
        return
    names = tuple(map(intern, event.metrics))
    ranks.reports[event.rank] = LastReport(event.step, names, tuple(event.metrics.values()))
    if event.rank == 0 and _is_ddp(state):
        state.group.add_report(event)


def checkpoint_saved(state: RunState, event: CheckpointSaved) -> None:
    """A round that begins from now on goes on from here."""
    if _is_ddp(state):
        state.group.checkpoint_step = event.step


def hang_verdict(state: RunState, event: HangVerdict) -> None:
    """The group made no step for too long."""
    state.notices.append(event.text)
    state.group.hang = event


def round_started(state: RunState) -> None:
    """The group of a ddp run begins a round."""
    if _is_ddp(state):
        state.group.begin_round()


def round_ended(state: RunState, event: AttemptFinished) -> None:
    """The group of a ddp run has ended a round; remember why, unless it did its work."""
    if not _is_ddp(state) or event.outcome not in ("failed", "evicted", "moved"):
        return
    ranks = state.ranks.get(event.trial)
    ended = {} if ranks is None or ranks.attempt != event.attempt else ranks.ended
    rank, cause = _cause(event, ended)
    unmet = event.failure is not None and event.failure.type_name == NEVER_MET
    state.group.n_unmet = state.group.n_unmet + 1 if unmet else 0
    state.group.add_restart(RestartRow(event.attempt, rank, cause[:_MAX_CAUSE]))


def fails_again(state: RunState, trial: TrialState, event: AttemptFinished) -> bool:
    """Whether a round of a ddp run failed as the one before did, without having come further.

    Such an exception is the code's own doing: a third round would end in it as well.  What may be
    another machine's fault, and crashes, hangs and memory, are left to ``--max-restarts``.
    """
    failure = event.failure
    if not _is_ddp(state) or failure is None:
        return False
    group, now = state.group, None
    if failure.kind in _OF_THE_CODE and not _OF_THE_WORLD.search(failure.type_name):
        message = _NUMBER.sub("#", _WHO.sub("", failure.message))
        cause = (failure.type_name, message, failure.line)
        step = -1 if trial.step is None else trial.step
        saved = -1 if group.checkpoint_step is None else group.checkpoint_step
        now = FailedRound(cause, step, saved)
    group.failed_again = now is not None and now.repeats(group.failed)
    group.failed = now
    return group.failed_again


def forget_ended(state: RunState) -> None:
    """Of a search, keep only the groups of running trials and of the best one."""
    if not _is_ddp(state):
        kept = {*state.running, state.best_number}
        state.ranks = {number: group for number, group in state.ranks.items() if number in kept}


def _cause(event: AttemptFinished, ended: dict[int, RankEnded]) -> tuple[int | None, str]:
    """The rank that began it, and a few words that follow its name."""
    failure = event.failure
    if failure is None:
        gone = [end for end in ended.values() if end.outcome == event.outcome]
        rank = min(gone, key=lambda end: (end.at_s, end.rank)).rank if gone else None
        return rank, "moved elsewhere" if event.outcome == "moved" else "lost its worker"
    return failure.rank, words_of(failure)


def words_of(failure: Failure) -> str:
    """What a rank did, as words that follow its name."""
    if failure.kind == "hang":
        return "kept the others waiting"
    if failure.kind == "launch" and failure.type_name == CUT_OFF:
        return "was cut off from the others"
    if failure.kind == "launch":
        return "lost its worker"
    if failure.kind == "crash":
        return f"died by {failure.type_name}"
    if failure.kind == "memory" and not failure.type_name.endswith("Error"):
        return "was ended for its memory"
    return f"raised {failure.type_name}"


def _is_ddp(state: RunState) -> bool:
    return state.spec is not None and state.spec.verb.can.has_ranks
