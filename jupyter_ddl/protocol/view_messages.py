"""What a view in a browser and the process behind it say to each other.

One language for two carriers: the in-cell view (a comm of the kernel) and the panel (a websocket of
the server extension).  Every struct is one JSON object whose ``kind`` names it.  Messages may be
lost on both ways, so each one that goes to the browser is complete in itself and numbered: a view
that notices a gap, or silence, sends :class:`AskAgain`; one that has drawn the end of a run says
so with :class:`Seen`, and until then the end is sent again.  Requests carry an ``id`` that comes
back in :class:`Done`, :class:`Denied` or the answer, and are safe to repeat.

The server extension speaks it at ``<base_url>jupyter-ddl/api/live``.  There are no other routes for
the panel: it gets :class:`Welcome`, then :class:`ClusterList` and :class:`RunList` whenever they
have changed, and the rest as it asks.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.replies import ClusterStatus
from jupyter_ddl.protocol.snapshot import (
    OutputRow,
    RestartRow,
    RunLine,
    RunSnapshot,
    TrialRow,
    TrialStateName,
)
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.protocol.telemetry import ClusterTelemetry
from jupyter_ddl.protocol.verb import StopHow

__all__ = [
    "AskAgain",
    "ClusterList",
    "ClusterLogPart",
    "ColumnHead",
    "ColumnsPart",
    "CompareRuns",
    "ComparedPart",
    "CurvesPart",
    "DeleteRun",
    "Denied",
    "Done",
    "FormField",
    "FormOfBackend",
    "FromBrowser",
    "GetClusterLog",
    "GetColumns",
    "GetCurves",
    "GetHistory",
    "GetImportance",
    "GetLog",
    "GetOutput",
    "GetStacks",
    "GetTrial",
    "Have",
    "HistoryPart",
    "ImportancePart",
    "LogPart",
    "MetricCurve",
    "OutputPart",
    "Progress",
    "RankStacks",
    "RecordTrouble",
    "ResumeRun",
    "RunHistory",
    "RunList",
    "RunView",
    "ScaleCluster",
    "Seen",
    "StacksPart",
    "StartCluster",
    "StopCluster",
    "StopRun",
    "StopTrial",
    "TelemetryView",
    "ToBrowser",
    "TrialPart",
    "Unwatch",
    "UnwatchCluster",
    "UseCluster",
    "WatchCluster",
    "WatchRun",
    "Welcome",
    "WriteTensorboard",
]


class RunView(msgspec.Struct, frozen=True, tag="run", tag_field="kind"):
    """A run as it is now.  ``seq`` counts the messages of this carrier, from 1."""

    seq: int
    at_s: float
    """Unix seconds here; the browser's own clock may be wrong."""
    snapshot: RunSnapshot


class TelemetryView(msgspec.Struct, frozen=True, tag="telemetry", tag_field="kind"):
    seq: int
    cluster: str
    telemetry: ClusterTelemetry
    run_id: str = ""
    """Empty: of the whole cluster."""


class RecordTrouble(msgspec.Struct, frozen=True, tag="record", tag_field="kind"):
    """What has become of the record of a run that is watched (panel only)."""

    seq: int
    at_s: float
    run_id: str
    text: str
    """Why it can't be read, or not to its end; empty: it can be read again."""


class ColumnHead(msgspec.Struct, frozen=True):
    """One value of each trial, as the bytes behind a :class:`ColumnsPart` have them."""

    group: Literal["trial", "param", "last", "least", "most"]
    """``trial``: ``row``, ``number``, ``state``, ``value``, ``duration_s``, ``worker``, ``step``,
    ``attempts``, ``failure`` or ``started_at_s``; ``param``: a parameter; else a metric's last,
    least or most value of a trial's last attempt."""
    name: str
    kind: Literal["f4", "f8", "i4", "u1", "u2", "u4"]
    """Little-endian.  NaN, and -2147483648 in ``i4``: there is no value."""
    at: int
    """Where it begins behind the message."""
    choices: tuple[ParamValue, ...] | None = None
    """What the codes of a ``u`` column stand for, from code 1; 0: there is no value."""


class ColumnsPart(msgspec.Struct, frozen=True, tag="columns", tag_field="kind"):
    """Answer to :class:`GetColumns`: all trials, or those that have changed.

    It travels as one binary frame: four bytes ``\\0DDL``, the length of this JSON as a
    little-endian ``u4``, the JSON, and the columns' bytes.
    """

    id: int
    run_id: str
    seq: int
    """Of the run, as told here: what :class:`GetColumns` names next."""
    part: int
    n_parts: int
    n_rows: int
    """Rows of this message.  Without a column ``row`` they are all, in order."""
    n_trials: int
    """Rows that there are."""
    n_params: int
    """Parameters that these rows have; columns are told of 256 at most."""
    n_metrics: int
    """Metrics that trials have reported; columns are told of 17 at most."""
    columns: tuple[ColumnHead, ...]
    """Those of this part; without a column ``number`` a trial's number is its row."""


class LogPart(msgspec.Struct, frozen=True, tag="log", tag_field="kind"):
    """Answer to :class:`GetLog`: the newest lines that match, at most 500 and 64 kB."""

    id: int
    run_id: str
    lines: tuple[str, ...]
    """Cut at 4 kB each, control characters taken out."""
    n_bytes: int
    """Size of the whole log on disk."""
    path: str = ""
    outputs: tuple[OutputRow, ...] = ()
    """Figures and tables of the trial, or of the whole run the newest."""


class OutputPart(msgspec.Struct, frozen=True, tag="output", tag_field="kind"):
    """Answer to :class:`GetOutput`: a picture or text, nothing that could be executed."""

    id: int
    run_id: str
    file: str
    mime: str
    """``image/png``, ``image/jpeg``, ``image/gif``, ``image/svg+xml`` or ``text/plain``."""
    content: str
    """Base64 of a picture, or text; at most 1 MB."""
    alt: str = ""
    """What the picture shows, in words."""


class ImportancePart(msgspec.Struct, frozen=True, tag="importance", tag_field="kind"):
    """Answer to :class:`GetImportance`."""

    id: int
    run_id: str
    shares: tuple[tuple[str, float], ...]
    """Parameters and their shares, which add up to 1, the largest first."""
    n_trials: int
    """Trials that they rest on."""
    note: str = ""
    """Why there are none, or what they leave out."""


CurveAxis: TypeAlias = Literal["step", "time", "epoch"]
"""What a curve goes over: steps, seconds since its trial began, or what it reports as epoch."""


class MetricCurve(msgspec.Struct, frozen=True):
    """How a metric of one trial went."""

    trial: int
    state: TrialStateName
    metric: str
    points: tuple[tuple[float, float], ...]
    """(place on the axis that was asked for, value), thinned evenly."""


class CurvesPart(msgspec.Struct, frozen=True, tag="curves", tag_field="kind"):
    """Answer to :class:`GetCurves`: of the best trials and of those that began last."""

    id: int
    run_id: str
    metric: str
    curves: tuple[MetricCurve, ...]
    metrics: tuple[str, ...]
    """All that these trials have reported: validation metrics first, then losses."""
    note: str = ""
    restarts: tuple[RestartRow, ...] = ()
    """Of a training: where its rounds went on."""


class TrialPart(msgspec.Struct, frozen=True, tag="trial", tag_field="kind"):
    """Answer to :class:`GetTrial`: all about one trial but its log."""

    id: int
    run_id: str
    row: TrialRow
    curves: tuple[MetricCurve, ...]
    cell: str
    """The trial as a plain cell, its values filled in; empty: there is no such cell."""
    note: str = ""
    """Why there is none, or what is not shown."""
    steps: str = ""
    """What the steps of a training are made of; empty: none is known."""


class RunHistory(msgspec.Struct, frozen=True):
    """A run over time; seconds since its first event."""

    began_s: float
    """Unix seconds of the first event."""
    length_s: float
    noun: str
    """What a bar is one of: a trial, an element; empty: a round of a rank."""
    lanes: tuple[str, ...]
    """Slots of workers, or ranks of a training."""
    bars: tuple[tuple[int, float, float, str, int, int], ...]
    """Lane, begin, end, outcome (``running``; ``mixed``: of several), trial, attempts in it."""
    marks: tuple[tuple[float, str, int | None, str], ...]
    """When, kind (``hang``, ``failed``, ``evicted``, ``restart``, ``pruned`` or ``checkpoint``),
    trial, and a few words."""
    n_bars: int
    """Attempts that are drawn."""
    n_hidden: int
    """And those in lanes that there is no room for."""
    n_marks: int
    """Marks that there were."""
    usage_at_s: tuple[float, ...]
    cpu: tuple[float | None, ...]
    """Share of the CPUs in use, on the average of all workers at work; None: not measured."""
    gpu: tuple[float | None, ...]
    memory: tuple[float | None, ...]


class HistoryPart(msgspec.Struct, frozen=True, tag="history", tag_field="kind"):
    """Answer to :class:`GetHistory`."""

    id: int
    run_id: str
    history: RunHistory
    note: str = ""
    """What it leaves out."""


class RankStacks(msgspec.Struct, frozen=True):
    """Where one rank of a hang stood."""

    rank: int
    is_blamed: bool
    """Whether the others wait for it."""
    text: str
    """Its stacks, the innermost frame first, each frame of a cell with its line of source."""


class StacksPart(msgspec.Struct, frozen=True, tag="stacks", tag_field="kind"):
    """Answer to :class:`GetStacks`: the rank that is to blame first, at most 8 and 64 kB."""

    id: int
    run_id: str
    ranks: tuple[RankStacks, ...]
    n_ranks: int
    """Of all that have left stacks."""


class ComparedPart(msgspec.Struct, frozen=True, tag="compared", tag_field="kind"):
    """Answer to :class:`CompareRuns`."""

    id: int
    html: str
    """As ``%runs compare`` shows it: static, no script."""


class ClusterElsewhere(msgspec.Struct, frozen=True):
    """A cluster of this user that runs elsewhere and is not connected to from here yet."""

    name: str
    place: str
    """Where it is, in its service's own words; empty: the service could not be asked."""
    text: str
    """What is done about it, or why nothing can be, in one line."""


class ClusterList(msgspec.Struct, frozen=True, tag="clusters", tag_field="kind"):
    """Every running cluster of this user, whoever started it."""

    seq: int
    at_s: float
    clusters: tuple[ClusterStatus, ...]
    unreachable: tuple[str, ...] = ()
    """Clusters whose controller does not answer."""
    chosen: str = ""
    """Of several, the one that a new notebook uses; empty: none was chosen."""
    trouble: str = ""
    """Why the server can't look now; what it saw last is listed meanwhile."""
    elsewhere: tuple[ClusterElsewhere, ...] = ()


class RunList(msgspec.Struct, frozen=True, tag="runs", tag_field="kind"):
    """The newest runs on disk, at most 200, newest first."""

    seq: int
    at_s: float
    runs: tuple[RunLine, ...]
    trouble: str = ""
    """What can't be read now; what was read of it last is listed meanwhile."""


class FormField(msgspec.Struct, frozen=True):
    """An option of a backend, as its grammar declares it."""

    flag: str
    """``--image``; without hyphens: a word that is always needed."""
    help: str
    metavar: str = ""
    """Empty: it is on or off, and takes no value."""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    """Whether it may be given several times."""


class FormOfBackend(msgspec.Struct, frozen=True):
    """What a form for one kind of cluster asks for and tells."""

    name: str
    purpose: str
    """What starting one does, in one sentence."""
    missing: str = ""
    """Why it can't be used here, and what helps; empty: it can, as far as is known."""
    has_size: bool = True
    """Whether the number of workers is this package's to choose."""
    fields: tuple[FormField, ...] = ()


class Welcome(msgspec.Struct, frozen=True, tag="welcome", tag_field="kind"):
    """First message of the server extension on a connection; numbers start over with it."""

    seq: int
    at_s: float
    version: str
    """Of this package, at the server."""
    backends: tuple[FormOfBackend, ...] = ()
    """What :class:`StartCluster` may name."""


class ClusterLogPart(msgspec.Struct, frozen=True, tag="cluster_log", tag_field="kind"):
    """Answer to :class:`GetClusterLog`; bounded as :class:`LogPart`."""

    id: int
    cluster: str
    lines: tuple[str, ...]
    n_foreign: int = 0
    """Lines of Dask and other libraries among those asked for, which were left out."""


class Progress(msgspec.Struct, frozen=True, tag="progress", tag_field="kind"):
    """A long request goes on; :class:`Done` or :class:`Denied` follows."""

    id: int
    text: str


class Done(msgspec.Struct, frozen=True, tag="done", tag_field="kind"):
    """A request took effect, or is on its way."""

    id: int
    text: str = ""


class Denied(msgspec.Struct, frozen=True, tag="denied", tag_field="kind"):
    """A request was refused: one line that says why."""

    id: int
    code: str
    text: str


ToBrowser: TypeAlias = (
    RunView
    | TelemetryView
    | RecordTrouble
    | ColumnsPart
    | LogPart
    | OutputPart
    | ImportancePart
    | CurvesPart
    | TrialPart
    | HistoryPart
    | ClusterList
    | RunList
    | Welcome
    | ClusterLogPart
    | StacksPart
    | ComparedPart
    | Progress
    | Done
    | Denied
)


class AskAgain(msgspec.Struct, frozen=True, tag="again", tag_field="kind"):
    """Send the newest of everything watched; ``seq`` is the last number seen."""

    seq: int = 0


class Have(msgspec.Struct, frozen=True, tag="have", tag_field="kind"):
    """Sign of life of a view, and the number of the newest :class:`RunView` that it has: soon after
    each new one, and every two seconds.  Who does not hear it of what was sent last sends that
    again; who hears nothing at all sends nothing more."""

    seq: int


class Seen(msgspec.Struct, frozen=True, tag="seen", tag_field="kind"):
    """The final snapshot of a run has been drawn."""

    run_id: str


class WatchRun(msgspec.Struct, frozen=True, tag="watch", tag_field="kind"):
    """Begin to receive :class:`RunView` and :class:`TelemetryView` of a run (panel only)."""

    id: int
    run_id: str


class Unwatch(msgspec.Struct, frozen=True, tag="unwatch", tag_field="kind"):
    id: int
    run_id: str


class StopRun(msgspec.Struct, frozen=True, tag="stop_run", tag_field="kind"):
    id: int
    run_id: str
    how: StopHow = "next_report"


class StopTrial(msgspec.Struct, frozen=True, tag="stop_trial", tag_field="kind"):
    id: int
    run_id: str
    trial: int


class ResumeRun(msgspec.Struct, frozen=True, tag="resume_run", tag_field="kind"):
    """Go on with a run that was stopped, failed or lost; its cluster is started if need be."""

    id: int
    run_id: str


class GetColumns(msgspec.Struct, frozen=True, tag="get_columns", tag_field="kind"):
    """All trials of a run, a column for each of their values."""

    id: int
    run_id: str
    since: int = 0
    """Only trials that have changed after this event."""
    part: int = 0
    """Large runs come in parts, the most important columns first."""


class GetLog(msgspec.Struct, frozen=True, tag="get_log", tag_field="kind"):
    """The end of what a trial or a rank has printed."""

    id: int
    run_id: str
    trial: int | None = None
    rank: int | None = None
    contains: str = ""
    n_lines: int = 200


class GetOutput(msgspec.Struct, frozen=True, tag="get_output", tag_field="kind"):
    """One of the outputs that :class:`LogPart` names, or of a snapshot's charts."""

    id: int
    run_id: str
    trial: int
    file: str


class GetStacks(msgspec.Struct, frozen=True, tag="get_stacks", tag_field="kind"):
    """Where the ranks of the latest hang stood."""

    id: int
    run_id: str


class GetImportance(msgspec.Struct, frozen=True, tag="get_importance", tag_field="kind"):
    """Which parameters set the best trials apart from the others."""

    id: int
    run_id: str


class GetCurves(msgspec.Struct, frozen=True, tag="get_curves", tag_field="kind"):
    """A metric over the course of trials; without a name, the first that there is."""

    id: int
    run_id: str
    metric: str = ""
    axis: CurveAxis = "step"
    is_best: bool = False
    """Of the best trial alone, where there is one, and in more points."""


class GetTrial(msgspec.Struct, frozen=True, tag="get_trial", tag_field="kind"):
    """One trial with its curves, and as a plain cell."""

    id: int
    run_id: str
    trial: int


class GetHistory(msgspec.Struct, frozen=True, tag="get_history", tag_field="kind"):
    """A run over time: lanes of trials or ranks, marks, and what machines did."""

    id: int
    run_id: str


class CompareRuns(msgspec.Struct, frozen=True, tag="compare_runs", tag_field="kind"):
    """A run beside others, five at most (panel only)."""

    id: int
    run_id: str
    others: tuple[str, ...]


class DeleteRun(msgspec.Struct, frozen=True, tag="delete_run", tag_field="kind"):
    """Remove a run's record, logs, checkpoints and values (panel only)."""

    id: int
    run_id: str


class WriteTensorboard(msgspec.Struct, frozen=True, tag="tensorboard", tag_field="kind"):
    """Write event files beside the run's record; :class:`Done` has the directory (panel only)."""

    id: int
    run_id: str


class WatchCluster(msgspec.Struct, frozen=True, tag="watch_cluster", tag_field="kind"):
    """Begin to receive :class:`TelemetryView` of a whole cluster (panel only)."""

    id: int
    cluster: str


class UnwatchCluster(msgspec.Struct, frozen=True, tag="unwatch_cluster", tag_field="kind"):
    id: int
    cluster: str


class StartCluster(msgspec.Struct, frozen=True, tag="start_cluster", tag_field="kind"):
    """Start a cluster (panel only): some :class:`Progress`, then :class:`Done` or a refusal.

    ``None`` means: as the host allows.  With the name of a cluster that has died, its unfinished
    runs go on.
    """

    id: int
    name: str = "local"
    backend: str = "local"
    n_workers: int | None = None
    cpus_per_worker: int = 1
    memory_per_worker_bytes: int | None = None
    idle_timeout_s: float = 1800.0
    max_age_s: float = 86400.0
    options: tuple[str, ...] = ()
    """The backend's own, as words of ``%cluster start``."""


class UseCluster(msgspec.Struct, frozen=True, tag="use_cluster", tag_field="kind"):
    """Let notebooks that have not chosen a cluster use this one (panel only)."""

    id: int
    cluster: str


class ScaleCluster(msgspec.Struct, frozen=True, tag="scale_cluster", tag_field="kind"):
    id: int
    cluster: str
    n_workers: int


class StopCluster(msgspec.Struct, frozen=True, tag="stop_cluster", tag_field="kind"):
    """End a cluster; its unfinished runs stay resumable."""

    id: int
    cluster: str


class GetClusterLog(msgspec.Struct, frozen=True, tag="get_cluster_log", tag_field="kind"):
    """The end of a controller's log, or of what it says of one worker."""

    id: int
    cluster: str
    worker: str | None = None
    contains: str = ""
    n_lines: int = 200
    with_foreign: bool = False
    """Also lines of Dask and other libraries that warn of nothing that concerns runs."""


FromBrowser: TypeAlias = (
    AskAgain
    | Have
    | Seen
    | WatchRun
    | Unwatch
    | StopRun
    | StopTrial
    | ResumeRun
    | GetColumns
    | GetLog
    | GetOutput
    | GetImportance
    | GetCurves
    | GetTrial
    | GetHistory
    | GetStacks
    | CompareRuns
    | DeleteRun
    | WriteTensorboard
    | UseCluster
    | WatchCluster
    | UnwatchCluster
    | StartCluster
    | ScaleCluster
    | StopCluster
    | GetClusterLog
)
