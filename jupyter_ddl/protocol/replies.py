"""What a controller answers: one reply per request, and snapshots pushed to watchers."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.cells import CellResult
from jupyter_ddl.protocol.facts import EnvironmentStatus, Facts
from jupyter_ddl.protocol.fit_results import FitResults
from jupyter_ddl.protocol.folder import FolderFile
from jupyter_ddl.protocol.mirroring import MirrorResult
from jupyter_ddl.protocol.prices import Place
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.telemetry import EncodedTelemetry

__all__ = [
    "Accepted",
    "ClusterState",
    "ClusterStatus",
    "DaskAccess",
    "EnvironmentResult",
    "GroupResult",
    "GroupStatus",
    "LogText",
    "RankStatus",
    "Refused",
    "Reply",
    "Result",
    "SnapshotPush",
    "SnapshotResult",
    "StatusResult",
    "TelemetryResult",
    "Upward",
    "WorkerStatus",
]


# A cluster at one moment, as ``%cluster`` and the panel show it.

ClusterState: TypeAlias = Literal["starting", "ready", "degraded", "stopping"]


class WorkerStatus(msgspec.Struct, frozen=True):
    name: str
    address: str
    host: str
    n_slots: int
    n_busy: int


class RankStatus(msgspec.Struct, frozen=True):
    """One rank of a persistent group."""

    rank: int
    worker: str
    host: str
    pid: int
    device: str
    log: str
    """Relative to ``<run_dir>/logs``."""
    log_end: int
    """Where the output of the next cell begins."""


class GroupStatus(msgspec.Struct, frozen=True):
    """A persistent group."""

    group_id: str
    """Also the name of its run directory."""
    name: str
    started_at_s: float
    n_cells: int
    is_busy: bool
    ranks: tuple[RankStatus, ...]
    has_process_group: bool = False

    @property
    def n_ranks(self) -> int:
        return len(self.ranks)


class ClusterStatus(msgspec.Struct, frozen=True):
    name: str
    backend: str
    state: ClusterState
    controller_pid: int
    scheduler_address: str
    started_at_s: float
    workers: tuple[WorkerStatus, ...]
    n_wanted: int
    """Workers asked for; fewer are there while some start."""
    cpus_per_worker: int
    memory_per_worker_bytes: int | None
    active_runs: tuple[str, ...]
    idle_timeout_s: float
    idle_left_s: float | None
    """Seconds until the cluster ends for being idle; None while a run is active."""
    age_left_s: float
    adapt: tuple[int, int] | None = None
    groups: tuple[GroupStatus, ...] = ()
    """Persistent groups; their ids are among ``active_runs``."""
    environment: EnvironmentStatus | None = None
    """What the last comparison of a kernel with the workers came to; None before the first."""
    gpus: str = ""
    """Those of all workers in a few words, or why there are none."""
    trouble: str = ""
    """Why the state is ``degraded``, in one line; empty in others."""
    waiting_runs: tuple[str, ...] = ()
    """Those of ``active_runs`` that wait for something outside them: slots, a worker, a disk."""
    place: Place = Place()
    """What its workers have, as far as it may cost something."""
    controller_host: str = ""
    """Name of the host that the controller runs on; empty: that of its clients."""

    @property
    def n_slots(self) -> int:
        return sum(worker.n_slots for worker in self.workers)


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """Done as asked."""

    run_id: str | None = None


class LogText(msgspec.Struct, frozen=True, tag="log_text"):
    text: str


class StatusResult(msgspec.Struct, frozen=True, tag="status"):
    status: ClusterStatus


class SnapshotResult(msgspec.Struct, frozen=True, tag="snapshot"):
    snapshot: EncodedSnapshot


class GroupResult(msgspec.Struct, frozen=True, tag="group"):
    """The group that is open now."""

    status: GroupStatus
    is_new: bool


class TelemetryResult(msgspec.Struct, frozen=True, tag="telemetry"):
    telemetry: EncodedTelemetry


class EnvironmentResult(msgspec.Struct, frozen=True, tag="environment"):
    """The environments of a cluster's workers.

    Attributes
    ----------
    workers : dict
        Digest of the facts by the worker's name.
    facts : dict
        Facts by digest, of those that the client does not know.
    errors : dict
        By the worker's name: why packages could not be installed.
    n_silent : int
        Workers that did not answer.
    patch : tuple of str
        Packages that all workers are given on top of what they have.
    apart : bool
        Workers have file systems of their own, and perhaps no way to an index of packages.
    """

    workers: dict[str, str]
    facts: dict[str, Facts] = {}
    errors: dict[str, str] = {}
    n_silent: int = 0
    patch: tuple[str, ...] = ()
    apart: bool = False


class DaskAccess(msgspec.Struct, frozen=True, tag="dask_access"):
    """The scheduler's address, and PEM texts that open it; empty where it has no TLS."""

    address: str
    ca: str = ""
    certificate: str = ""
    key: str = ""


class FilesResult(msgspec.Struct, frozen=True, tag="files_result"):
    """What ranks have written in the folder of a run."""

    files: tuple[FolderFile, ...] = ()


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The request failed: the class of the error (in ``jupyter_ddl.errors``) and its message."""

    error: str
    message: str
    fields: dict[str, Any] = {}


Result: TypeAlias = (
    Accepted
    | LogText
    | StatusResult
    | SnapshotResult
    | TelemetryResult
    | EnvironmentResult
    | GroupResult
    | CellResult
    | FitResults
    | DaskAccess
    | FilesResult
    | MirrorResult
    | Refused
)


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    id: int
    result: Result


class SnapshotPush(msgspec.Struct, frozen=True, tag="push"):
    snapshot: EncodedSnapshot


Upward: TypeAlias = Reply | SnapshotPush
