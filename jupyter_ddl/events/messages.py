"""What comes up: the records of a ledger, in the order in which they were committed."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.events.failure import Failure, FailureKind, Outcome
from jupyter_ddl.events.rank_messages import (
    Beat,
    HangVerdict,
    Probe,
    RankEnded,
    RankStarted,
    RendezvousReady,
    ValueKept,
    WorkerLeaving,
)
from jupyter_ddl.events.telemetry import Usage
from jupyter_ddl.spec.run import RunSpec
from jupyter_ddl.spec.space import ParamValue

__all__ = [
    "SCHEMA_VERSION",
    "AttemptFinished",
    "AttemptStarted",
    "Beat",
    "CellExecuted",
    "CheckpointSaved",
    "Event",
    "Failure",
    "FailureKind",
    "FoldFinished",
    "HangVerdict",
    "Notice",
    "OfAttempt",
    "Outcome",
    "Probe",
    "RankEnded",
    "RankEvent",
    "RankStarted",
    "RendezvousReady",
    "Reported",
    "RunFinished",
    "RunStarted",
    "RunSubmitted",
    "StopRequested",
    "TrialCreated",
    "Unrecorded",
    "ValueKept",
    "WorkerLeaving",
]

SCHEMA_VERSION = 1
"""Version of these messages; a ledger and both ends of a socket state theirs."""


class RunSubmitted(msgspec.Struct, frozen=True, tag="run_submitted"):
    spec: RunSpec
    at_s: float
    schema: int = SCHEMA_VERSION


class RunStarted(msgspec.Struct, frozen=True, tag="run_started"):
    """The run begins, or goes on in a new controller (then ``session`` > 1)."""

    at_s: float
    session: int
    n_slots: int
    max_parallel: int
    controller_pid: int


class TrialCreated(msgspec.Struct, frozen=True, tag="trial_created"):
    """The sampler proposed a trial.  Numbers are consecutive from 0."""

    trial: int
    params: dict[str, ParamValue]
    at_s: float
    is_refit: bool = False
    """Of a fit: no candidate, but a parallel call of a search's refit."""
    place: int | None = None
    """Of a fit: its place among the cell's candidates; None: its number."""


class AttemptStarted(msgspec.Struct, frozen=True, tag="attempt_started"):
    """A rank begins an attempt.  ``log_start`` is a byte offset in ``<run_dir>/logs/<log>``."""

    trial: int
    attempt: int
    at_s: float
    worker: str
    pid: int
    log: str
    log_start: int


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """``report(step=…, **metrics)`` in a cell.  NaN and infinities are kept as they are."""

    trial: int
    attempt: int
    step: int
    metrics: dict[str, float]
    at_s: float
    rank: int = 0


class CheckpointSaved(msgspec.Struct, frozen=True, tag="checkpoint_saved"):
    trial: int
    attempt: int
    step: int
    file: str
    """Relative to ``<run_dir>/checkpoints``."""
    digest: str
    size_bytes: int
    at_s: float


class AttemptFinished(msgspec.Struct, frozen=True, tag="attempt_finished"):
    """How an attempt ended.

    Whether the *trial* has ended follows from it by the reducer: complete, pruned and
    cancelled end it; failed ends it once its own failures reach the limit; evicted once its
    evictions exceed theirs.
    """

    trial: int
    attempt: int
    outcome: Outcome
    at_s: float
    duration_s: float
    value: float | None = None
    """The objective (search), None for a map."""
    log_end: int | None = None
    """Byte offset behind this attempt's last output; None: the end of the file."""
    values_file: str | None = None
    """Brought values, relative to ``<run_dir>/values``; None when none were saved."""
    failure: Failure | None = None
    inline_value: bool | int | float | str | None = None
    """The cell's value (map) when it is small and JSON-able; then no file was written."""
    has_inline_value: bool = False
    result: bytes = b""
    """Of a fit: an encoded ``NodeResult`` or ``UnitResult``.  Not recorded in this form."""


class StopRequested(msgspec.Struct, frozen=True, tag="stop_requested"):
    """A person asked for the run, or one trial, to stop."""

    at_s: float
    when: Literal["next_report", "now"]
    trial: int | None = None
    by: str = ""
    cell_id: str = ""
    """Of a candidate of a fit: the execution of the cell that goes on without it."""


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """A sentence the user should see: a recovery, a fallback, a torn tail that was cut."""

    at_s: float
    text: str
    level: Literal["info", "warning"] = "info"


class CellExecuted(msgspec.Struct, frozen=True, tag="cell_executed"):
    """A persistent group has executed a cell."""

    number: int
    source: str
    targets: tuple[int, ...]
    """Ranks that executed it."""
    outcome: Literal["complete", "failed", "cancelled"]
    at_s: float
    duration_s: float
    log_starts: tuple[int, ...] = ()
    log_ends: tuple[int, ...] = ()
    """Bytes of the targets' logs between which its output lies."""
    failure: Failure | None = None
    """Of the first rank that failed."""


class FoldFinished(msgspec.Struct, frozen=True, tag="fold_finished"):
    """One unit of a fit has its outcome: a candidate on a fold, or a part of a parallel call."""

    trial: int
    fold: int
    key: bytes
    """Digest of all that the outcome depends on: a resumed run takes it from here."""
    at_s: float
    duration_s: float
    outcome: bytes = b""
    """Pickled for the notebook that asked for it, if small."""
    file: str = ""
    """Where a large outcome lies, relative to ``<run_dir>/values``."""
    score: float | None = None
    has_raised: bool = False
    failure: Failure | None = None
    is_lost: bool = False
    """Its process died, with ``failure``: there is no outcome."""
    log: str = ""
    log_start: int = 0
    log_end: int | None = None
    """Bytes of ``<run_dir>/logs/<log>`` that it printed; without an end, up to the file's."""


class RunFinished(msgspec.Struct, frozen=True, tag="run_finished"):
    at_s: float
    state: Literal["complete", "failed", "cancelled"]
    reason: str = ""
    failure: Failure | None = None
    """The first cause, when ``state`` is failed."""
    failed_trial: int | None = None
    totals: dict[str, int] = {}
    """Trials per state when the run ended, so that a listing need not fold the run."""
    best_trial: int | None = None
    best_value: float | None = None
    step: int | None = None
    """Of a ddp run: the last step that its latest round reported."""
    round: int = 0
    """Of a ddp run: the number of its latest round; 0 where none began."""
    usage: Usage | None = None
    """What it has held; None where nobody has measured."""


OfAttempt: TypeAlias = (
    AttemptStarted
    | RankStarted
    | RankEnded
    | HangVerdict
    | Reported
    | CheckpointSaved
    | AttemptFinished
)
"""Events that count only while their attempt is the trial's current one."""

RankEvent: TypeAlias = (
    AttemptStarted
    | Reported
    | CheckpointSaved
    | AttemptFinished
    | Notice
    | RendezvousReady
    | Beat
    | Probe
    | ValueKept
    | WorkerLeaving
)
"""What comes from a rank or its worker; the driver writes the other events."""

Unrecorded: TypeAlias = RendezvousReady | Beat | Probe | ValueKept | WorkerLeaving
"""Rank events that are for launcher and driver only."""

Event: TypeAlias = (
    RunSubmitted
    | RunStarted
    | TrialCreated
    | AttemptStarted
    | RankStarted
    | RankEnded
    | HangVerdict
    | Reported
    | CheckpointSaved
    | AttemptFinished
    | StopRequested
    | Notice
    | CellExecuted
    | FoldFinished
    | RunFinished
)
