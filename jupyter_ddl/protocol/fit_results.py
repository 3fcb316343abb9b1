"""What a rank answers for a node or unit of a fit, and what the kernel gets to read."""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.names import MaybeFileName

__all__ = ["FitResults", "NodeResult", "TakenUnit", "UnitResult", "Where"]

Where = Literal["memory", "disk", "nowhere"]


class NodeResult(msgspec.Struct, frozen=True, tag="node"):
    """A prefix was computed, and its output lies ``where``.

    ``nowhere`` with a ``reason``: its users compute it themselves.
    """

    where: Where
    size_bytes: int = 0
    duration_s: float = 0.0
    reason: Literal["", "failed", "random", "bound"] = ""


class UnitResult(msgspec.Struct, frozen=True, tag="unit"):
    """A call was made.  Only the kernel that asked for it unpickles the outcome."""

    outcome: bytes = b""
    file: MaybeFileName = ""
    """Where a large outcome lies, relative to ``<run_dir>/values``."""
    score: float | None = None
    failure: Failure | None = None
    """The estimator raised; the outcome is what scikit-learn makes of it."""
    has_raised: bool = False
    """The call itself raised, which ends its batch; the outcome is the exception."""


class TakenUnit(msgspec.Struct, frozen=True, array_like=True):
    """One finished unit, by its index in the batch."""

    unit: int
    outcome: bytes = b""
    file: MaybeFileName = ""
    has_raised: bool = False
    lost: Failure | None = None
    """Its process died: there is no outcome."""
    is_stopped: bool = False
    """Its candidate was stopped: there is no outcome."""


class FitResults(msgspec.Struct, frozen=True, tag="fit_results"):
    """Units that have finished, in the order in which they did, from ``n_taken`` on."""

    units: tuple[TakenUnit, ...]
    is_stopped: bool = False
    """The run was stopped: no more will come."""
    reason: str = ""
