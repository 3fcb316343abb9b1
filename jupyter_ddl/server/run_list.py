"""The list of runs on disk, read again only where something has changed.

A ledger that has ended is read once.  Ten thousand of them cost a second when the server first
looks, in a thread, and one look at a directory's time afterwards.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import msgspec

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.reader import RunSummary, read_summary
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import latest_round, latest_step
from jupyter_ddl.protocol.view_messages import RunLine
from jupyter_ddl.server.folds import Folds
from jupyter_ddl.store.paths import ledger_path, runs_dir

__all__ = ["N_RUNS", "RunListing"]

N_RUNS = 200
_LOOK_AT_ALL_S = 60.0
_MAX_FOLDED = 10
"""Long unfinished runs whose whole ledger is read to tell how far they are."""


@dataclass(slots=True)
class _Known:
    summary: RunSummary | None
    """None: it could not be read, as it was at this time and size."""
    mark: tuple[int, int]
    """Time and size of the ledger."""


class RunListing:
    """Called from one thread at a time, never from the server's loop."""

    def __init__(self, folds: Folds) -> None:
        self._folds = folds
        self._known: dict[str, _Known] = {}
        self._directory_mark: int | None = None
        self._looked_at_all_s = -_LOOK_AT_ALL_S

    def poll(self, live: Container[str]) -> tuple[RunLine, ...]:
        """The newest runs, newest first.

        Parameters
        ----------
        live : container of str
            Runs that a controller drives now: an ended one among them goes on.
        """
        self._take_names()
        now = time.monotonic()
        if now - self._looked_at_all_s >= _LOOK_AT_ALL_S:
            # An ended run may have been resumed by a controller that has died since.
            self._looked_at_all_s = now
            changing = list(self._known)
        else:
            changing = [run_id for run_id, each in self._known.items() if _may_change(each)]
            changing += [run_id for run_id in self._known if run_id in live]
        for run_id in changing:
            self._read(run_id)
        there = (each.summary for each in self._known.values() if each.summary is not None)
        newest = heapq.nlargest(N_RUNS, there, key=lambda summary: summary.created_at_s)
        return self._lines(newest, live)

    def _take_names(self) -> None:
        """Runs that have come or gone since the last look."""
        mark = runs_dir().stat().st_mtime_ns
        if mark == self._directory_mark:
            return
        names = {entry.name for entry in os.scandir(runs_dir())}
        for gone in self._known.keys() - names:
            del self._known[gone]
        for new in names - self._known.keys():
            self._known[new] = _Known(None, (0, 0))
            self._read(new)
        self._directory_mark = mark

    def _read(self, run_id: str) -> None:
        known = self._known[run_id]
        path = ledger_path(run_id)
        try:
            facts = path.stat()
            mark = (facts.st_mtime_ns, facts.st_size)
            if mark != known.mark:
                known.mark = mark
                known.summary = read_summary(path)
        except (JupyterDDLError, OSError):
            known.summary = None  # being created or removed, or damaged: not listed

    def _lines(self, summaries: list[RunSummary], live: Container[str]) -> tuple[RunLine, ...]:
        n_folded = 0
        lines = []
        for summary in summaries:
            if summary.counts is None and n_folded < _MAX_FOLDED:
                n_folded += 1
                summary = self._with_progress(summary)
            lines.append(_line(summary, summary.run_id in live))
        return tuple(lines)

    def _with_progress(self, summary: RunSummary) -> RunSummary:
        try:
            progress = self._folds.poll(summary.run_id, _progress)
        except JupyterDDLError:
            return summary  # it was removed in this moment, or is damaged
        return msgspec.structs.replace(summary, **progress)


def _progress(state: RunState) -> dict[str, Any]:
    """Fields of a summary that only the whole ledger of a run that goes on tells."""
    return {
        "counts": state.counts,
        "best_value": state.best_value,
        "step": latest_step(state),
        "round": latest_round(state),
    }


def _may_change(known: _Known) -> bool:
    return known.summary is None or known.summary.finished_at_s is None


def _line(summary: RunSummary, live: bool) -> RunLine:
    return RunLine(
        run_id=summary.run_id,
        name=summary.name,
        verb=summary.verb,
        cluster=summary.cluster,
        state=summary.state,
        created_at_s=summary.created_at_s,
        finished_at_s=summary.finished_at_s,
        n_trials=summary.n_trials,
        n_finished=summary.counts.finished if summary.counts else 0,
        step=summary.step,
        round=summary.round,
        best=summary.best_value,
        metric=summary.metric,
        live=live,
    )
