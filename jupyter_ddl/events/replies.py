"""What a controller answers: one reply per request, and snapshots pushed to watchers."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from jupyter_ddl.events.cell_results import CellResult
from jupyter_ddl.events.fit_results import FitResults
from jupyter_ddl.events.snapshot import RunSnapshot
from jupyter_ddl.events.status import ClusterStatus, GroupStatus
from jupyter_ddl.events.telemetry import ClusterTelemetry
from jupyter_ddl.spec.facts import Facts

__all__ = [
    "Accepted",
    "DaskAccess",
    "EnvironmentResult",
    "GroupResult",
    "LogText",
    "Refused",
    "Reply",
    "Result",
    "SnapshotPush",
    "SnapshotResult",
    "StatusResult",
    "TelemetryResult",
    "Upward",
]


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """Done as asked."""

    run_id: str | None = None


class LogText(msgspec.Struct, frozen=True, tag="log_text"):
    text: str


class StatusResult(msgspec.Struct, frozen=True, tag="status"):
    status: ClusterStatus


class SnapshotResult(msgspec.Struct, frozen=True, tag="snapshot"):
    snapshot: RunSnapshot


class GroupResult(msgspec.Struct, frozen=True, tag="group"):
    """The group that is open now."""

    status: GroupStatus
    is_new: bool


class TelemetryResult(msgspec.Struct, frozen=True, tag="telemetry"):
    telemetry: ClusterTelemetry


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
    | Refused
)


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    id: int
    result: Result


class SnapshotPush(msgspec.Struct, frozen=True, tag="push"):
    snapshot: RunSnapshot


Upward: TypeAlias = Reply | SnapshotPush
