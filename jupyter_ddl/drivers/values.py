"""Keeps the brought values that are still wanted, and removes the others' files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from jupyter_ddl.ledger.reducer import RunState
from jupyter_ddl.protocol.events import AttemptFinished

__all__ = ["ValueFiles"]


class ValueFiles:
    """A search keeps the best trial's values only; a map keeps every element's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._best: tuple[int, str] | None = None

    def adopt(self, state: RunState) -> None:
        """Learn the best trial's file from a resumed run."""
        if state.best_number is not None:
            name = state.values_file(state.best_number)
            if name is not None:
                self._best = (state.best_number, name)

    def settle(self, event: AttemptFinished, state: RunState) -> None:
        """After a committed attempt: keep its file if it is the best, else remove it."""
        name = event.values_file
        if name is None or (state.spec and state.spec.verb.can.brings != "best"):
            return
        if state.best_number != event.trial:
            self._remove(name)
            return
        if self._best is not None and self._best[1] != name:
            self._remove(self._best[1])
        self._best = (event.trial, name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._directory / name).unlink()
