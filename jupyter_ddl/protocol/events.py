"""What comes up: the records of a ledger, in the order in which they were committed."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.names import FileName, FilePath, MaybeFileName, StorePath
from jupyter_ddl.protocol.pipeline import PipelineTimes
from jupyter_ddl.protocol.prices import Budget, Held
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.protocol.staleness import Staleness
from jupyter_ddl.protocol.telemetry import Finite, Usage

__all__ = [
    "LAST_LINES",
    "SCHEMA_VERSION",
    "AssignmentResult",
    "AttemptFinished",
    "AttemptStarted",
    "Beat",
    "BudgetSet",
    "CellExecuted",
    "CheckpointSaved",
    "Event",
    "EventChunk",
    "Failure",
    "FailureKind",
    "FoldFinished",
    "GroupSettled",
    "HangVerdict",
    "Notice",
    "OfAttempt",
    "Operation",
    "Outcome",
    "OutputShown",
    "PipelineTimed",
    "Probe",
    "ProfileTaken",
    "RankEnded",
    "RankEvent",
    "RankStarted",
    "RendezvousReady",
    "Reported",
    "RunFinished",
    "RunStarted",
    "RunSubmitted",
    "Spent",
    "StalenessCounted",
    "StepsTimed",
    "StopRequested",
    "TrialCreated",
    "Unrecorded",
    "ValueKept",
    "WorkerLeaving",
]


# How attempts end, and why they fail.

Outcome: TypeAlias = Literal["complete", "pruned", "failed", "cancelled", "evicted", "moved"]
"""How an attempt ended.  ``evicted``: its worker or rank was lost through no fault of its own.
``moved``: it left at a checkpoint to go on elsewhere or with other ranks; charged to no budget."""

FailureKind: TypeAlias = Literal[
    "exception",  # the cell raised
    "crash",  # the rank process died by a signal or by os._exit
    "memory",  # killed for memory
    "metric",  # no metric, or one that is not a finite real number
    "values",  # a brought value is missing or cannot be pickled
    "import",  # a module is missing on the worker
    "disk",  # no space left where the rank writes; not charged to the trial
    "blob",  # something that the run is made of is not on the rank's host; not charged to the trial
    "timeout",
    "hang",  # no rank of the group made a step for too long
    "launch",  # the worker was lost, or could not start a rank; not charged to the trial
]


LAST_LINES = "Last lines of its output:"
"""Begins what a rank has printed, below the traceback of its failure."""


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt failed, ready to be shown."""

    kind: FailureKind
    type_name: str
    """Exception class, or the signal's name (``SIGSEGV``)."""
    message: str
    traceback: str = ""
    """The user's own frames, ending in the message; lines are the notebook's."""
    line: int | None = None
    """Line in the cell (the magic is line 1)."""
    rank: int | None = None
    """Of a rank group: the rank that failed first."""


# What comes up of the ranks of a group: recorded, or for launcher and driver only.


class RankStarted(msgspec.Struct, frozen=True, tag="rank_started"):
    """A rank of a group begins; ``log_start`` is a byte offset in ``<run_dir>/logs/<log>``."""

    trial: int
    attempt: int
    rank: int
    at_s: Finite
    worker: str
    host: str
    pid: int
    log: MaybeFileName
    log_start: int
    device: str = "cpu"
    world_size: int = 0
    """Ranks of this round; 0 in ledgers of before."""
    life: int = 1
    """Processes that the rank has had in this round: from the second on, it joins the others."""


class RankEnded(msgspec.Struct, frozen=True, tag="rank_ended"):
    """A rank of a group is over; the group's own end is its ``AttemptFinished``."""

    trial: int
    attempt: int
    rank: int
    outcome: Outcome
    at_s: Finite
    duration_s: Finite
    log_end: int | None = None
    values_file: FileName | None = None
    failure: Failure | None = None
    inline_value: bool | int | float | str | None = None
    """The cell's value at this rank, as in :class:`AttemptFinished`."""
    has_inline_value: bool = False
    others_go_on: bool = False
    """It was lost, and the round goes on without it."""


class StepsTimed(msgspec.Struct, frozen=True, tag="steps_timed"):
    """What a rank's training steps were made of: sums since its round began.

    A later one holds all that an earlier one does.  What data and exchange leave over is compute.
    """

    trial: int
    attempt: int
    rank: int
    at_s: Finite
    n_steps: int
    """Optimizer steps, those left out in which it also validated or saved."""
    step_s: Finite
    data_s: Finite
    """Waiting for a DataLoader."""
    exchange_s: Finite | None
    """From a rank's own gradients until all ranks' are averaged; None: not measured."""
    n_samples: int
    n_workers: int | None = None
    """``num_workers`` of the loader; None: there was none."""
    gradient_norm: float | None = None
    """Of one of the last steps; None where looking would cost more than 0.1 %."""
    gradient_bytes: int | None = None
    """Of all parameters that the optimizer trains, whole ones where they are sharded."""
    n_cpus: int = 0
    """That the rank and the others of its host may use; 0: not told."""
    bytes_sent: int | None = None
    """Payload that the rank has sent in steps of ``prepare_step``; None: it makes none."""
    hidden_share: Finite | None = None
    """Of the time in which DDP's gradients are on their way, what the backward pass hides, from 0
    to 1; None: not measured."""
    n_updates: int = 0
    """All optimizer steps so far, also those that are left out of ``n_steps``; 0: not told."""
    peak_memory_bytes: int | None = None
    """The most main memory that the rank's process has held; None: not told."""


class PipelineTimed(msgspec.Struct, frozen=True, tag="pipeline_timed"):
    """One batch of a pipeline, as rank 0 has gathered it; a later one stands for an earlier."""

    trial: int
    attempt: int
    at_s: Finite
    times: PipelineTimes


class StalenessCounted(msgspec.Struct, frozen=True, tag="staleness_counted"):
    """How old the gradients of a parameter server were; a later one holds the earlier."""

    trial: int
    attempt: int
    at_s: Finite
    counted: Staleness


class HangVerdict(msgspec.Struct, frozen=True, tag="hang_verdict"):
    """No rank of a group made a step for too long: who is to blame, and what the others do."""

    trial: int
    attempt: int
    rank: int
    """The rank that the others wait for."""
    at_s: Finite
    text: str
    """One sentence: which rank, which line of the cell, what the others wait for."""
    line: int | None = None
    is_outside: bool = False
    """Whether no rank is to blame, but its worker or what lies between the hosts."""
    stacks_file: str = ""
    """Directory with the stacks of all ranks, relative to the run's."""


class RendezvousReady(msgspec.Struct, frozen=True, tag="rendezvous_ready"):
    """A rank of a group is ready to be joined.  Not recorded: it is for the launcher."""

    trial: int
    attempt: int
    host: str
    port: int
    store: StorePath = ""
    """Path of the group's store on the one host of its ranks; empty: it is at this address."""


class GroupSettled(msgspec.Struct, frozen=True, tag="group_settled"):
    """All ranks of a group have met and are ready for steps, as rank 0 tells.  Not recorded.

    A rank that is lost before is one that others wait for while they meet.
    """

    trial: int
    attempt: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A rank's sign of life, about once a second.  Not recorded."""

    trial: int
    attempt: int
    phase: Literal["loading", "rendezvous", "cell", "leaving"]
    n_steps: int
    """Optimizer steps and reports so far."""
    at_s: Finite


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """What a worker sees of a rank from outside.  Not recorded."""

    trial: int
    attempt: int
    state: str
    """The process's state as the kernel tells it: ``R``, ``S``, ``D``, ``T`` …; empty: gone."""
    cpu_share: float
    """CPU time that it and its children took lately, in CPUs."""
    stacks: str
    """Of all its threads, as ``faulthandler`` writes them; empty when there are none."""
    cut_off: tuple[str, ...] = ()
    """Hosts of its group that acknowledge nothing of what it has sent them."""


class ValueKept(msgspec.Struct, frozen=True, tag="value_kept"):
    """A rank can't send its cell's value home.  Not recorded: its group tells it once."""

    trial: int
    attempt: int
    why: str


class WorkerLeaving(msgspec.Struct, frozen=True, tag="worker_leaving"):
    """The worker of an attempt was told to go and ends it soon.  Not recorded."""

    trial: int
    attempt: int
    grace_s: Finite


SCHEMA_VERSION = 1
"""Version of these messages; a ledger and both ends of a socket state theirs."""


class RunSubmitted(msgspec.Struct, frozen=True, tag="run_submitted"):
    spec: RunSpec
    at_s: Finite
    schema: int = SCHEMA_VERSION


class RunStarted(msgspec.Struct, frozen=True, tag="run_started"):
    """The run begins, or goes on in a new controller (then ``session`` > 1)."""

    at_s: Finite
    session: int
    n_slots: int
    max_parallel: int
    controller_pid: int


class TrialCreated(msgspec.Struct, frozen=True, tag="trial_created"):
    """The sampler proposed a trial.  Numbers are consecutive from 0."""

    trial: int
    params: dict[str, ParamValue]
    at_s: Finite
    is_refit: bool = False
    """Of a fit: no candidate, but a parallel call of a search's refit."""
    place: int | None = None
    """Of a fit: its place among the cell's candidates; None: its number."""


class AttemptStarted(msgspec.Struct, frozen=True, tag="attempt_started"):
    """A rank begins an attempt.  ``log_start`` is a byte offset in ``<run_dir>/logs/<log>``."""

    trial: int
    attempt: int
    at_s: Finite
    worker: str
    pid: int
    log: MaybeFileName
    log_start: int


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """``report(step=…, **metrics)`` in a cell.  NaN and infinities are kept as they are."""

    trial: int
    attempt: int
    step: int
    metrics: dict[str, float]
    at_s: Finite
    rank: int = 0


class CheckpointSaved(msgspec.Struct, frozen=True, tag="checkpoint_saved"):
    trial: int
    attempt: int
    step: int
    file: FilePath
    """Relative to ``<run_dir>/checkpoints``; begins with the digest that its reader checks."""
    size_bytes: int
    at_s: Finite


class OutputShown(msgspec.Struct, frozen=True, tag="output_shown"):
    """A rank has shown something rich (a figure, a table), or replaced what it had shown."""

    trial: int
    attempt: int
    file: FileName
    """Where it lies, relative to ``<run_dir>/outputs``; what lay there before is gone."""
    size_bytes: int
    at_s: Finite
    shown: tuple[FileName, ...]
    """Files of all that the attempt shows from now on, in order: what is not named is gone."""


class Operation(msgspec.Struct, frozen=True):
    """What torch's profiler has measured of one operation in all recorded steps of a rank."""

    name: str
    n_calls: int
    cpu_s: Finite
    """Without the operations that it called."""
    device_s: Finite
    """On the GPU; 0 without one."""


class ProfileTaken(msgspec.Struct, frozen=True, tag="profile_taken"):
    """A rank has the trace of some of its steps (``--profile``)."""

    trial: int
    attempt: int
    rank: int
    at_s: Finite
    n_steps: int
    file: FileName
    """Relative to ``<run_dir>/profiles``: the trace as Perfetto reads it, JSON in gzip."""
    size_bytes: int
    cpu_s: Finite
    """Of all operations, in all recorded steps."""
    device_s: Finite
    operations: tuple[Operation, ...]
    """The costliest, in order."""


class AttemptFinished(msgspec.Struct, frozen=True, tag="attempt_finished"):
    """How an attempt ended.

    Whether the *trial* has ended follows from it by the reducer: complete, pruned and
    cancelled end it; failed ends it once its own failures reach the limit; evicted once there were
    more of them in a row than their limit, without a further step or checkpoint in between.
    """

    trial: int
    attempt: int
    outcome: Outcome
    at_s: Finite
    duration_s: Finite
    value: float | None = None
    """The objective (search), None for a map."""
    log_end: int | None = None
    """Byte offset behind this attempt's last output; None: the end of the file."""
    values_file: FileName | None = None
    """Brought values, relative to ``<run_dir>/values``; None when none were saved."""
    failure: Failure | None = None
    inline_value: bool | int | float | str | None = None
    """The cell's value (map) when it is small and JSON-able; then no file was written."""
    has_inline_value: bool = False
    result: bytes = b""
    """Of a fit: an encoded ``NodeResult`` or ``UnitResult``.  Not recorded in this form."""


class StopRequested(msgspec.Struct, frozen=True, tag="stop_requested"):
    """A person asked for the run, or one trial, to stop."""

    at_s: Finite
    when: Literal["next_report", "now"]
    trial: int | None = None
    by: str = ""
    cell_id: str = ""
    """Of a candidate of a fit: the execution of the cell that goes on without it."""


class Spent(msgspec.Struct, frozen=True, tag="spent"):
    """What the run has held and cost so far, in all sessions; once a minute, where it counts."""

    at_s: Finite
    held: Held


class BudgetSet(msgspec.Struct, frozen=True, tag="budget_set"):
    """Somebody has resumed the run with another budget."""

    at_s: Finite
    budget: Budget


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """A sentence the user should see: a recovery, a fallback, a torn tail that was cut."""

    at_s: Finite
    text: str


class CellExecuted(msgspec.Struct, frozen=True, tag="cell_executed"):
    """A persistent group has executed a cell."""

    number: int
    source: str
    targets: tuple[int, ...]
    """Ranks that executed it."""
    outcome: Literal["complete", "failed", "cancelled"]
    at_s: Finite
    duration_s: Finite
    log_starts: tuple[int, ...] = ()
    log_ends: tuple[int, ...] = ()
    """Bytes of the targets' logs between which its output lies."""
    outputs: tuple[FileName, ...] = ()
    """What the first target shows, relative to ``<run_dir>/outputs``, in order."""
    failure: Failure | None = None
    """Of the first rank that failed."""


class FoldFinished(msgspec.Struct, frozen=True, tag="fold_finished"):
    """One unit of a fit has its outcome: a candidate on a fold, or a part of a parallel call."""

    trial: int
    fold: int
    """Its place among the units of its candidate, from 0: two may be on the same split."""
    key: bytes
    """Digest of all that the outcome depends on: a resumed run takes it from here."""
    at_s: Finite
    duration_s: Finite
    outcome: bytes = b""
    """Pickled for the notebook that asked for it, if small."""
    file: MaybeFileName = ""
    """Where a large outcome lies, relative to ``<run_dir>/values``."""
    score: float | None = None
    has_raised: bool = False
    failure: Failure | None = None
    is_lost: bool = False
    """Its process died, with ``failure``: there is no outcome."""
    log: MaybeFileName = ""
    log_start: int = 0
    log_end: int | None = None
    """Bytes of ``<run_dir>/logs/<log>`` that it printed; without an end, up to the file's."""


class RunFinished(msgspec.Struct, frozen=True, tag="run_finished"):
    at_s: Finite
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
    spent: Held | msgspec.UnsetType = msgspec.UNSET
    """What it has held and cost in all sessions; unset where it has neither prices nor budget."""


OfAttempt: TypeAlias = (
    AttemptStarted
    | RankStarted
    | RankEnded
    | StepsTimed
    | PipelineTimed
    | StalenessCounted
    | HangVerdict
    | Reported
    | CheckpointSaved
    | OutputShown
    | ProfileTaken
    | AttemptFinished
)
"""Events that count only while their attempt is the trial's current one."""

RankEvent: TypeAlias = (
    AttemptStarted
    | Reported
    | CheckpointSaved
    | OutputShown
    | ProfileTaken
    | AttemptFinished
    | Notice
    | StepsTimed
    | PipelineTimed
    | StalenessCounted
    | RendezvousReady
    | GroupSettled
    | Beat
    | Probe
    | ValueKept
    | WorkerLeaving
)
"""What comes from a rank or its worker; the driver writes the other events."""

Unrecorded: TypeAlias = RendezvousReady | GroupSettled | Beat | Probe | ValueKept | WorkerLeaving
"""Rank events that are for launcher and driver only."""

Event: TypeAlias = (
    RunSubmitted
    | RunStarted
    | TrialCreated
    | AttemptStarted
    | RankStarted
    | RankEnded
    | StepsTimed
    | PipelineTimed
    | StalenessCounted
    | HangVerdict
    | Reported
    | CheckpointSaved
    | OutputShown
    | ProfileTaken
    | AttemptFinished
    | StopRequested
    | Spent
    | BudgetSet
    | Notice
    | CellExecuted
    | FoldFinished
    | RunFinished
)


# How rank events travel from a worker to the driver: numbered chunks on a Dask topic.
#
# Chunks of one assignment are numbered from 0, and the assignment's Dask future returns
# how many there were, so the driver notices a lost chunk and asks the worker to replay it.


class EventChunk(msgspec.Struct, frozen=True):
    """Some events of one assignment, in order."""

    run_id: str
    assignment_id: str
    number: int
    events: tuple[RankEvent, ...]


class AssignmentResult(msgspec.Struct, frozen=True):
    """What the Dask future of an assignment returns.

    Attempts without an ``AttemptFinished`` among the chunks were not executed (their rank
    died before it reached them, or the run was stopped) and cost no budget.
    """

    assignment_id: str
    n_chunks: int
