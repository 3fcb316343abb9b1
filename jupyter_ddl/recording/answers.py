"""What a recording answers without a run: importance, curves, and the cells of its best trials.

Worked out once, where the timeline is made, by what answers a view of a run
(``views/analysis.py``); ``views/live/projector.js`` tells it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jupyter_ddl.ledger.run_state import RunState, by_importance
from jupyter_ddl.ledger.tables import complete_trials, curve_trials, metric_curves
from jupyter_ddl.plotting.importance import importance_of
from jupyter_ddl.protocol.events import Event
from jupyter_ddl.views.analysis import cell_of

__all__ = ["answers_of"]

_N_CURVES = 40
_N_POINTS = 40
_N_METRICS = 8
"""With curves; the others are told by number."""
_N_CELLS = 50
_MAX_CELLS_BYTES = 200_000


def answers_of(state: RunState, events: Iterable[Event]) -> dict[str, Any] | None:
    """As JSON holds it, for the end of the run; None for runs that search for nothing.

    ``curves`` are lists of ``[trial, steps, values]`` by metric; ``cells`` are texts by trial.

    Parameters
    ----------
    state : RunState
        All of ``events``, folded.
    """
    study = None if state.spec is None else state.spec.verb.study
    if study is None:
        return None
    found = importance_of(study, complete_trials(state))
    curves, n_metrics = _curves(state, events)
    return {
        "importance": {
            "shares": [[name, round(share, 6)] for name, share in found.shares.items()],
            "n_trials": found.n_trials,
            "note": found.note,
        },
        "curves": curves,
        "n_metrics": n_metrics,
        "cells": _cells(state, study.mode),
    }


def _curves(state: RunState, events: Iterable[Event]) -> tuple[dict[str, Any], int]:
    """Of the best trials and those begun last, by metric: the most important ones."""
    found = metric_curves(events, curve_trials(state, _N_CURVES), _N_POINTS)
    names = by_importance(dict.fromkeys(metric for _, metric in found))
    curves: dict[str, Any] = {}
    for name in names[:_N_METRICS]:
        drawn = {
            trial: series.drawn() for (trial, metric), series in found.items() if metric == name
        }
        curves[name] = [
            [trial, [step for step, _ in points], [value for _, value in points]]
            for trial, points in drawn.items()
        ]
    return curves, len(names)


def _cells(state: RunState, mode: str) -> dict[str, str]:
    """The best trials as cells, as far as there is room for them."""
    sign = 1 if mode == "min" else -1
    known = [
        (sign * trial.value, n) for n, trial in state.trials.items() if trial.value is not None
    ]
    cells: dict[str, str] = {}
    n_bytes = 0
    for _, number in sorted(known)[:_N_CELLS]:
        text, _ = cell_of(state, number)
        n_bytes += len(text)
        if not text or n_bytes > _MAX_CELLS_BYTES:
            break
        cells[str(number)] = text
    return cells
