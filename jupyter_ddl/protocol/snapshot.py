"""Events folded: what every face (cell, panel, terminal) draws."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.events import Failure, HangVerdict, Outcome
from jupyter_ddl.protocol.prices import BudgetUnit
from jupyter_ddl.protocol.reading import json_decoder
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.protocol.telemetry import Usage
from jupyter_ddl.protocol.verb import Capabilities, Nouns

__all__ = [
    "PIPELINE",
    "STALENESS",
    "BestTrial",
    "CellRow",
    "Counts",
    "Driving",
    "EncodedSnapshot",
    "LearningCurve",
    "OperationRow",
    "OutputRow",
    "RankRow",
    "RestartRow",
    "RunLine",
    "RunSnapshot",
    "RunStateName",
    "SpendingRow",
    "StepParts",
    "TraceRow",
    "TrialRow",
    "TrialStateName",
]

RunStateName: TypeAlias = Literal[
    "submitted", "starting", "running", "complete", "failed", "cancelled"
]
TrialStateName: TypeAlias = Literal[
    "waiting", "running", "complete", "pruned", "failed", "cancelled"
]

Driving: TypeAlias = Literal["live", "recovering", "none"]


class Counts(msgspec.Struct, frozen=True):
    waiting: int = 0
    running: int = 0
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def finished(self) -> int:
        return self.complete + self.pruned + self.failed + self.cancelled


class TrialRow(msgspec.Struct, frozen=True):
    """One trial as a view shows it."""

    number: int
    state: TrialStateName
    params: dict[str, ParamValue]
    value: float | None = None
    step: int | None = None
    """Last reported step."""
    metrics: dict[str, float | None] = {}
    """Last reported metrics; None where one that was not finite has travelled as JSON."""
    attempts: int = 0
    own_failures: int = 0
    evictions: int = 0
    worker: str = ""
    started_at_s: float | None = None
    duration_s: float | None = None
    """Of the last attempt that has ended; of a running one, views count from its start."""
    failure: Failure | None = None


class BestTrial(msgspec.Struct, frozen=True):
    number: int
    params: dict[str, ParamValue]
    value: float


class LearningCurve(msgspec.Struct, frozen=True):
    """How the objective of one trial went."""

    trial: int
    state: TrialStateName
    points: tuple[tuple[int, float], ...]
    """(step, objective), thinned to at most 40 points."""


PIPELINE = "pipeline"
"""The chart of which stage computed what when."""
STALENESS = "staleness"
"""The chart of how many updates late gradients came."""


class OutputRow(msgspec.Struct, frozen=True):
    """Something rich that a trial shows: a figure, a table."""

    trial: int
    file: str
    """Relative to ``<run_dir>/outputs``."""
    at_s: float
    """When it was shown, or replaced for the last time."""


class OperationRow(msgspec.Struct, frozen=True):
    """An operation in a step, on the average of all steps that were recorded."""

    name: str
    share: float
    """Of the time of all operations, on GPUs where there are any."""
    cpu_s: float
    """Without the operations that it called."""
    device_s: float
    n_calls: float


class TraceRow(msgspec.Struct, frozen=True):
    """The trace of one rank."""

    trial: int
    rank: int
    file: str
    """Relative to ``<run_dir>/profiles``."""
    size_bytes: int


class CellRow(msgspec.Struct, frozen=True):
    """One cell that a persistent group has executed."""

    number: int
    source: str
    targets: tuple[int, ...]
    outcome: Literal["complete", "failed", "cancelled"]
    at_s: float
    duration_s: float
    failure: str = ""


class StepParts(msgspec.Struct, frozen=True):
    """What a rank's step is made of: seconds, on the average of its round so far."""

    n_steps: int
    step_s: float
    data_s: float
    """Waiting for its DataLoader."""
    compute_s: float
    """All that is not one of the others."""
    waiting_s: float | None = None
    """For slower ranks, in the exchange of gradients; None: not measured."""
    exchange_s: float | None = None
    """The exchange itself, as far as it isn't hidden behind the backward pass."""
    samples_s: float | None = None
    """Samples a second."""
    n_workers: int | None = None
    """Of its DataLoader."""
    gradient_norm: float | None = None


class RankRow(msgspec.Struct, frozen=True):
    """One rank of a ddp run's latest round."""

    rank: int
    host: str
    worker: str
    device: str
    pid: int
    state: Literal["running"] | Outcome
    step: int | None = None
    """Last reported step."""
    metrics: dict[str, float | None] = {}
    """Last reported metrics; None where one that was not finite has travelled as JSON."""
    phase: str = ""
    """``loading``, ``rendezvous``, ``cell`` or ``leaving``; empty: not known."""
    heard_at_s: float | None = None
    """Unix seconds of its last step or phase; None: not known."""
    parts: StepParts | None = None
    """What its steps are made of; None: nothing is known of them yet."""
    bytes_per_step: float | None = None
    """Payload that it sends, on the average of its round so far; None: not counted."""
    peak_memory_bytes: int | None = None
    """The most main memory that its process has held; None: not told."""


class RestartRow(msgspec.Struct, frozen=True):
    """Why a round ended without having done its work."""

    round: int
    rank: int | None
    """The rank that began it."""
    cause: str
    """What it did, as words that follow its name: ``died by SIGKILL``."""
    step: int | None = None
    """Step of the checkpoint that the next round went on from; None: there was none."""
    is_over: bool = False
    """Whether the next round has begun."""


class SpendingRow(msgspec.Struct, frozen=True):
    """What a run has spent in one unit, at one moment, and what it spends since."""

    unit: BudgetUnit
    currency: str
    """Three letters; empty for hours."""
    amount: float
    at_s: float
    """Unix seconds at which it was that much."""
    per_hour: float
    """What an hour has added since then; 0 of a run that holds nothing."""
    budget: float | None = None
    """What ends the run once it is spent; None: nothing does."""


class RunLine(msgspec.Struct, frozen=True):
    """A run in a list: of ledgers, of ``%runs``, of the terminal and of the panel."""

    run_id: str
    name: str
    verb: str
    """Its word: to be shown, and compared with nothing."""
    can: Capabilities
    nouns: Nouns
    cluster: str
    state: RunStateName
    """As the ledger tells: a run whose controller has died is still ``running`` here."""
    created_at_s: float
    finished_at_s: float | None = None
    n_trials: int = 0
    n_finished: int | None = None
    """None: a long run that has not ended, whose whole ledger would have to be read."""
    step: int | None = None
    """Of a ddp run: the last step that its latest round reported."""
    round: int = 0
    """Of a ddp run: the number of its latest round; 0 where none began."""
    best: float | None = None
    metric: str | None = None
    live: bool = False
    """Whether a controller drives it now; an unfinished run that none drives can be resumed."""
    recovering: bool = False
    """Whether its controller has just been lost: whoever waits for the run starts another one."""
    waits: bool = False
    """Whether it is driven and waits for something outside it: slots, a worker, a disk."""
    is_damaged: bool = False
    """Whether its record is damaged: the line tells what stands before that, `repair` keeps it."""
    cost: float | None = None
    """What it has cost, as far as its record tells; None: it has no prices."""
    currency: str = ""


class RunSnapshot(msgspec.Struct, frozen=True):
    """A run at one moment, bounded in size whatever the run does (≤ 64 kB as JSON).

    It holds no age and no time that is left, only when something began or is expected: so it stays
    true, and is not drawn again, while nothing happens.

    ``seq`` grows with every committed event: a view that has seen ``seq`` n ignores older ones.
    """

    seq: int
    run_id: str
    name: str
    verb: str
    """Its word: to be shown, and compared with nothing."""
    can: Capabilities
    nouns: Nouns
    state: RunStateName
    cluster: str
    created_at_s: float
    n_trials: int
    counts: Counts
    started_at_s: float | None = None
    finished_at_s: float | None = None
    metric: str | None = None
    mode: Literal["max", "min"] = "max"
    sampler: str = ""
    pruner: str = ""
    best: BestTrial | None = None
    rows: tuple[TrialRow, ...] = ()
    """The trials worth showing: best ones, running ones, last finished ones; by number."""
    curve: tuple[tuple[int, float], ...] = ()
    """(trial number, objective) of finished trials, thinned to at most 300 points."""
    pruned: tuple[int, ...] = ()
    """Trials of the curve that were pruned."""
    best_curve: tuple[tuple[int, float], ...] = ()
    """(trials finished, best so far), one point per improvement, at most 100."""
    learning: tuple[LearningCurve, ...] = ()
    """Of a search: the best trials, the newest running and the last ended ones, at most 12."""
    trials_per_s: float | None = None
    ends_at_s: float | None = None
    """Unix seconds at which it will be done if it goes on at this rate."""
    n_evictions: int = 0
    notices: tuple[str, ...] = ()
    """The last 5."""
    paused: str = ""
    """Why the run is waiting (disk full, no worker), empty when it is not."""
    driver: Driving = "live"
    """``recovering``: its controller has just been lost; ``none``: nothing goes on by itself."""
    stopping: bool = False
    reason: str = ""
    failure: Failure | None = None
    failed_trial: int | None = None
    cells: tuple[CellRow, ...] = ()
    """The last cells of a persistent group."""
    ranks: tuple[RankRow, ...] = ()
    """Of a ddp run: the first ranks of the latest round, at most 64."""
    world_size: int = 0
    """Ranks of the latest round; 0 before the first."""
    n_to_come: int = 0
    """Of these, how many have not begun: they start now, or wait for slots and join later."""
    round: int = 0
    """Number of the latest round, from 1; 0 before the first."""
    max_rounds: int = 0
    """Rounds that may fail by the code's own fault."""
    restarts: tuple[RestartRow, ...] = ()
    """Why the last rounds ended."""
    checkpoint_step: int | None = None
    series: dict[str, tuple[tuple[int, float], ...]] = {}
    """Metric → (step, value) as rank 0 reported them, thinned to at most 300 points: of at most 24
    metrics, which share the room of four."""
    metrics: tuple[str, ...] = ()
    """Names of the series, the most important first: validations, losses, others as reported."""
    n_metrics: int = 0
    """Metrics that rank 0 has reported, those without a series included."""
    hang: HangVerdict | None = None
    """The latest verdict on a hang."""
    step_verdict: str = ""
    """What the ranks' steps wait for, and what to try; empty: nothing is known of them yet."""
    bytes_sent: int | None = None
    """Payload that all ranks have sent in steps of ``prepare_step``; None: nobody counts it."""
    outputs: tuple[OutputRow, ...] = ()
    """What is shown below the view, at most 10: of a search its best trial's, else the newest."""
    n_outputs: int = 0
    """Of all trials."""
    charts: tuple[OutputRow, ...] = ()
    """What is drawn of a training beside its ranks: ``file`` is the chart's name, and ``at_s``
    grows when there is something new in it."""
    operations: tuple[OperationRow, ...] = ()
    """Where steps were profiled: the costliest ten of all ranks together."""
    traces: tuple[TraceRow, ...] = ()
    """By trial and rank, at most 64."""
    usage: Usage | None = None
    """Of a run that is over: what it has held."""
    spending: tuple[SpendingRow, ...] = ()
    """What it has cost, where it has prices, and what of its budget is gone."""

    @property
    def last_step(self) -> int | None:
        """Of a ddp run: the last step of its latest round, rank 0's or the furthest of any rank."""
        steps = [row.step for row in self.ranks if row.step is not None]
        if self.ranks and self.ranks[0].rank == 0 and self.ranks[0].step is not None:
            return self.ranks[0].step
        return max(steps, default=None)


_DECODER = json_decoder(RunSnapshot)
_FINAL = frozenset({"complete", "failed", "cancelled"})


class EncodedSnapshot(msgspec.Struct, frozen=True):
    """A snapshot as it travels: encoded by who drew it, and passed on byte for byte."""

    run_id: str
    seq: int
    state: RunStateName
    json: bytes

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self.state in _FINAL

    def decode(self) -> RunSnapshot:
        """For those who draw in Python."""
        return _DECODER.decode(self.json)
