"""One tree of errors.

Every message a user can meet says, in one line: what was attempted, the value seen,
what was expected, what to do next.  Each class has a ``code`` under which the
troubleshooting page explains it, and survives pickling with its fields.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "BackendError",
    "CapacityError",
    "CaptureError",
    "CellError",
    "ClusterError",
    "ControllerError",
    "EnvironmentFileError",
    "FitError",
    "FitStoppedError",
    "GroupLostError",
    "ImageError",
    "JupyterDDLError",
    "LaunchError",
    "LedgerBusyError",
    "LedgerError",
    "OptionError",
    "PlacementError",
    "PluginError",
    "ProtocolError",
    "QuotaError",
    "RankFailedError",
    "RecordingError",
    "RunFailedError",
    "RunNotFoundError",
    "SpaceError",
    "SpecError",
    "StorageError",
    "TrialError",
    "WorkerEnvironmentError",
]


class JupyterDDLError(Exception):
    """Base of everything this package raises on purpose.

    Parameters
    ----------
    message : str
        One line: what was tried, the value seen, what was expected, what to do next.
    **fields
        Facts about the failure (``run_id``, ``trial``, ``path`` …), kept as attributes.
    """

    code: ClassVar[str] = "DDL-0000"

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.fields)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


def _rebuild(kind: type[JupyterDDLError], message: str, fields: dict[str, Any]) -> JupyterDDLError:
    return kind(message, **fields)


class CellError(JupyterDDLError, ValueError):
    """The cell cannot be turned into a spec (syntax, hyper-parameters, names)."""

    code = "DDL-1001"


class OptionError(CellError):
    """An option of a magic or of its Python twin is unknown or has a wrong value."""

    code = "DDL-1002"


class SpaceError(CellError):
    """The search space is empty, contradictory or too large."""

    code = "DDL-1003"


class CaptureError(CellError):
    """A name that the cell uses cannot travel (unpicklable or too large)."""

    code = "DDL-1004"


class SpecError(JupyterDDLError, ValueError):
    """A spec has a value that no run can be made of."""

    code = "DDL-2001"


class PluginError(JupyterDDLError):
    """A sampler, pruner, strategy or backend of a package is there, and can't be used."""

    code = "DDL-2002"


class ClusterError(JupyterDDLError):
    """A cluster cannot be started, found or reached."""

    code = "DDL-3001"


class ControllerError(ClusterError):
    """The controller of a cluster does not answer, or answered with an error."""

    code = "DDL-3002"


class BackendError(ClusterError):
    """The service that is to provide the workers refused something, or they do not come up."""

    code = "DDL-3003"


class PlacementError(JupyterDDLError):
    """What was asked for does not fit on the cluster."""

    code = "DDL-4001"


class LaunchError(JupyterDDLError):
    """Rank processes cannot be started."""

    code = "DDL-4002"


class GroupLostError(LaunchError):
    """A persistent group has ended, and the namespaces of its ranks with it."""

    code = "DDL-4003"


class CapacityError(JupyterDDLError, OSError):
    """A resource of the host (disk, file descriptors, processes) is used up."""

    code = "DDL-7001"


class StorageError(JupyterDDLError):
    """A file system lacks what is needed there, as locks."""

    code = "DDL-7002"


class LedgerError(JupyterDDLError):
    """A run's ledger cannot be read or written."""

    code = "DDL-5001"


class LedgerBusyError(LedgerError):
    """Another live process writes this ledger."""

    code = "DDL-5002"


class RunNotFoundError(JupyterDDLError, LookupError):
    """No run has this id."""

    code = "DDL-5003"


class RecordingError(JupyterDDLError):
    """A recording of a run cannot be written, read or played; carries its path and line."""

    code = "DDL-5004"


class ProtocolError(JupyterDDLError):
    """A peer sent something that is not a message of this protocol version."""

    code = "DDL-6001"


class QuotaError(ProtocolError):
    """A browser asked for more at once than one may."""

    code = "DDL-6002"


class FitError(JupyterDDLError, ValueError):
    """A scikit-learn fit can't be distributed as it is, or a part of it was lost."""

    code = "DDL-8005"


class FitStoppedError(FitError):
    """A fit was stopped; what was finished is kept."""

    code = "DDL-8006"


class TrialError(JupyterDDLError):
    """A trial failed; carries the remote traceback with the cell's own lines."""

    code = "DDL-8001"


class RunFailedError(TrialError):
    """A run ended without a result; the message is the first cause."""

    code = "DDL-8002"


class RankFailedError(TrialError):
    """A cell raised on a rank of a persistent group; carries the remote traceback."""

    code = "DDL-8004"


class WorkerEnvironmentError(JupyterDDLError):
    """Workers have another environment than the kernel, or cannot be given what they lack."""

    code = "DDL-9001"


class EnvironmentFileError(SpecError):
    """A file that describes an environment cannot be read; carries its path and line."""

    code = "DDL-9002"


class ImageError(ClusterError):
    """A container image cannot be named, found or built."""

    code = "DDL-9003"
