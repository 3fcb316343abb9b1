"""Folded runs, kept between requests so that only what is new in a ledger is read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from jupyter_ddl.errors import JupyterDDLError, RunNotFoundError
from jupyter_ddl.ledger.reader import LedgerReader
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.store.paths import ledger_path

__all__ = ["Folds", "check_run_id"]

T = TypeVar("T")

_N_KEPT = 16
_MAX_ID = 80


def check_run_id(run_id: str) -> None:
    """Refuse what no run id can be, before it becomes part of a path.

    Raises
    ------
    RunNotFoundError
        There can be no such run.
    """
    if len(run_id) > _MAX_ID or not run_id.isascii() or not run_id.replace("-", "").isalnum():
        raise RunNotFoundError(
            f"there is no run {run_id[:_MAX_ID]!r}; ids are letters, digits and -"
        )


class _Entry:
    def __init__(self, run_id: str) -> None:
        self.guard = threading.Lock()
        self.reader = LedgerReader(ledger_path(run_id))
        self.state = RunState()

    def catch_up(self) -> None:
        for event in self.reader.poll():
            fold(self.state, event)

    def __del__(self) -> None:
        reader = getattr(self, "reader", None)
        if reader is not None:
            reader.close()


class Folds:
    """Called from any thread but the server's loop: a long ledger takes a second."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def poll(self, run_id: str, read: Callable[[RunState], T]) -> T:
        """What ``read`` makes of a run as its ledger tells it now; it must not keep the state.

        Raises
        ------
        RunNotFoundError
            There is no such run.
        LedgerError
            Its ledger is damaged.
        """
        entry = self._entry(run_id)
        with entry.guard:
            try:
                entry.catch_up()
            except JupyterDDLError:
                self.forget(run_id)  # half-folded: the next look begins anew
                raise
            if entry.state.spec is None:
                raise RunNotFoundError(f"run {run_id} has no first record yet", run_id=run_id)
            return read(entry.state)

    def forget(self, run_id: str) -> None:
        """Read this run from its beginning the next time."""
        with self._guard:
            self._entries.pop(run_id, None)

    def clear(self) -> None:
        """Forget all runs: nobody looks at them now."""
        with self._guard:
            self._entries.clear()

    def _entry(self, run_id: str) -> _Entry:
        check_run_id(run_id)
        with self._guard:
            entry = self._entries.get(run_id)
            if entry is None:
                if not ledger_path(run_id).exists():
                    raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
                entry = self._entries[run_id] = _Entry(run_id)
                while len(self._entries) > _N_KEPT:
                    self._entries.popitem(last=False)
            self._entries.move_to_end(run_id)
            return entry
