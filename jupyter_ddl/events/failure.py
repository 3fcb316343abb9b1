"""How attempts end, and why they fail."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["Failure", "FailureKind", "Outcome"]

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
    "timeout",
    "hang",  # no rank of the group made a step for too long
    "launch",  # the worker was lost, or could not start a rank; not charged to the trial
]


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
