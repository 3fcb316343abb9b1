"""What a client asks a controller: typed requests, answered one by one.

A frame on the socket is a 4-byte big-endian length and the msgpack of one struct: :class:`Request`
down; :class:`jupyter_ddl.protocol.replies.Reply` or a snapshot push up.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.cells import Cell
from jupyter_ddl.protocol.facts import EnvironmentStatus, Patch
from jupyter_ddl.protocol.fit import FeedFit, FinishFit, TakeFit, TellFit
from jupyter_ddl.protocol.folder import FolderFile
from jupyter_ddl.protocol.mirroring import CopyBody, MirrorBody
from jupyter_ddl.protocol.prices import Budget
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.verb import StopHow

__all__ = [
    "MAX_REQUEST_BYTES",
    "PROTOCOL_VERSION",
    "Adapt",
    "Body",
    "CloseGroup",
    "EnvironmentBody",
    "ExecuteCell",
    "FeedFit",
    "FetchFile",
    "FinishFit",
    "FitBody",
    "GetDask",
    "GetEnvironment",
    "GetLog",
    "GetStatus",
    "GetTelemetry",
    "GroupBody",
    "Hello",
    "InterruptCell",
    "ListFiles",
    "OpenGroup",
    "PollCell",
    "Request",
    "ResumeRun",
    "Scale",
    "StopCluster",
    "StopHow",
    "StopRunRequest",
    "StopTrialRequest",
    "SubmitRun",
    "SyncEnvironment",
    "TakeFit",
    "TellFit",
    "UnwatchRun",
    "WatchRun",
]

PROTOCOL_VERSION = 1
MAX_REQUEST_BYTES = 4 << 20
"""Captured values travel as blobs, so a request is small: the cell and its options."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First request of a connection."""

    version: int


class GetStatus(msgspec.Struct, frozen=True, tag="get_status"):
    """Workers, slots, active runs, leases."""


class SubmitRun(msgspec.Struct, frozen=True, tag="submit_run"):
    spec: RunSpec


class ResumeRun(msgspec.Struct, frozen=True, tag="resume_run"):
    """Go on with a run whose ledger is on disk; finished trials stay finished."""

    run_id: str
    budget: Budget | None = None
    """Of all sessions, in place of the one that it has."""


class WatchRun(msgspec.Struct, frozen=True, tag="watch_run"):
    """Answered with the current snapshot; newer ones are pushed until the run has ended."""

    run_id: str


class UnwatchRun(msgspec.Struct, frozen=True, tag="unwatch_run"):
    """Push no snapshots of a run on this connection any more."""

    run_id: str


class StopRunRequest(msgspec.Struct, frozen=True, tag="stop_run_request"):
    run_id: str
    when: StopHow = "next_report"


class StopTrialRequest(msgspec.Struct, frozen=True, tag="stop_trial_request"):
    run_id: str
    trial: int
    when: StopWhen = "next_report"


class Scale(msgspec.Struct, frozen=True, tag="scale"):
    n_workers: int


class Adapt(msgspec.Struct, frozen=True, tag="adapt"):
    minimum: int
    maximum: int


class GetLog(msgspec.Struct, frozen=True, tag="get_log"):
    """The newest lines of the controller's log, or of one worker's (name or address)."""

    worker: str | None = None
    n_lines: int = 200


class GetDask(msgspec.Struct, frozen=True, tag="get_dask"):
    """How plain Dask code of this user reaches the scheduler."""


class ListFiles(msgspec.Struct, frozen=True, tag="list_files"):
    """What ranks have written in the folder of a run, on workers with files of their own."""

    run_id: str


class FetchFile(msgspec.Struct, frozen=True, tag="fetch_file"):
    """Bring one of those into the run's directory; answered when it is there."""

    run_id: str
    file: FolderFile


class StopCluster(msgspec.Struct, frozen=True, tag="stop_cluster"):
    """End the controller and all below it.  Unfinished runs stay resumable."""


class GetTelemetry(msgspec.Struct, frozen=True, tag="get_telemetry"):
    """What the workers measure now: of the whole cluster, or of one run."""

    run_id: str = ""


class GetEnvironment(msgspec.Struct, frozen=True, tag="get_environment"):
    """The environments of all workers; ``known``: digests of facts that need not be sent."""

    known: tuple[str, ...] = ()
    fresh: bool = False
    """Ask the workers now; otherwise what they told last will do."""


class SyncEnvironment(msgspec.Struct, frozen=True, tag="sync_environment"):
    """Install packages on all workers; the wheels of the patch are blobs of this host."""

    patch: Patch


class TellVerdict(msgspec.Struct, frozen=True, tag="tell_verdict"):
    """What a kernel's comparison with the workers came to, for whoever looks at the cluster."""

    verdict: EnvironmentStatus


EnvironmentBody: TypeAlias = GetEnvironment | SyncEnvironment | TellVerdict


class OpenGroup(msgspec.Struct, frozen=True, tag="open_group"):
    """A persistent group as ``spec.verb`` says: the one that is open, or else a new one."""

    spec: RunSpec
    """Of the new group's record."""
    reset: bool = False
    """End the one that is open, and its namespace, first."""


class ExecuteCell(msgspec.Struct, frozen=True, tag="execute_cell"):
    """Answered when the cell has ended on all its ranks."""

    group_id: str
    cell: Cell
    targets: tuple[int, ...] | None = None
    """Ranks that execute it; None: all."""


class PollCell(msgspec.Struct, frozen=True, tag="poll_cell"):
    """How far the cell is that a group executes; answered at once."""

    group_id: str


class InterruptCell(msgspec.Struct, frozen=True, tag="interrupt_cell"):
    """Raise ``KeyboardInterrupt`` on the ranks that execute a cell."""

    group_id: str


class CloseGroup(msgspec.Struct, frozen=True, tag="close_group"):
    """End the ranks of a persistent group; ``why`` is what its next cell is told."""

    group_id: str
    why: str = "it was closed"


GroupBody: TypeAlias = OpenGroup | ExecuteCell | PollCell | InterruptCell | CloseGroup

FitBody: TypeAlias = FeedFit | TakeFit | FinishFit | TellFit

Body: TypeAlias = (
    Hello
    | GetStatus
    | SubmitRun
    | ResumeRun
    | WatchRun
    | UnwatchRun
    | StopRunRequest
    | StopTrialRequest
    | Scale
    | Adapt
    | GetLog
    | StopCluster
    | GetTelemetry
    | EnvironmentBody
    | GroupBody
    | FitBody
    | GetDask
    | ListFiles
    | FetchFile
    | MirrorBody
    | CopyBody
)


class Request(msgspec.Struct, frozen=True):
    id: int
    body: Body
