"""The runs that a list shows, with what only a controller or a whole ledger knows."""

from __future__ import annotations

import msgspec

from jupyter_ddl.client.history import list_runs, live_runs
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.events.reader import RunSummary

__all__ = ["list_with_state"]

_MAX_FOLDED = 10
"""Long unfinished runs whose whole ledger is read to tell how far they are."""


def list_with_state() -> list[tuple[RunSummary, bool]]:
    """Every run, newest first, and whether a controller drives it now."""
    summaries = list_runs()
    unfinished = [each for each in summaries if each.finished_at_s is None]
    live = live_runs() if unfinished else frozenset()
    unknown = [each for each in unfinished if each.counts is None][:_MAX_FOLDED]
    folded = {each.run_id: _with_progress(each) for each in unknown}
    return [(folded.get(each.run_id, each), each.run_id in live) for each in summaries]


def _with_progress(summary: RunSummary) -> RunSummary:
    from jupyter_ddl.client.run import Run

    try:
        snapshot = Run(summary.run_id).snapshot()
    except JupyterDDLError:
        return summary  # it was removed in this moment, or is damaged: `%runs show ID` tells
    best = snapshot.best
    return msgspec.structs.replace(
        summary,
        counts=snapshot.counts,
        best_trial=None if best is None else best.number,
        best_value=None if best is None else best.value,
        step=snapshot.last_step,
        round=snapshot.round,
    )
