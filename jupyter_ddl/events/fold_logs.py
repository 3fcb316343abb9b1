"""Where the output of a candidate's folds lies; of those that have printed something."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, TypeAlias

from jupyter_ddl.events.messages import FoldFinished

if TYPE_CHECKING:
    from jupyter_ddl.events.run_state import RunState

__all__ = ["LogSpan", "fold_finished"]

LogSpan: TypeAlias = tuple[str, int, int | None]
"""File, and the bytes between which it was printed; without an end, up to the file's."""


def fold_finished(state: RunState, event: FoldFinished) -> None:
    """All else about a fold, its candidate is told of by ``Reported``."""
    if event.log and event.log_end != event.log_start:
        spans = state.fold_logs.setdefault(event.trial, {})
        spans[event.fold] = intern(event.log), event.log_start, event.log_end
