"""What a recording answers without a run: importance, curves, and the cells of its best trials.

Worked out once, where the timeline is made, by what answers a view of a run
(``views/analysis.py``); ``views/live/projector.js`` tells it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from jupyter_ddl.ledger.run_state import RunState, by_importance
from jupyter_ddl.ledger.tables import Axis, complete_trials, curve_trials, metric_curves, points_of
from jupyter_ddl.plotting.importance import importance_of
from jupyter_ddl.protocol.events import Event
from jupyter_ddl.views.analysis import cell_of

__all__ = ["answers_of"]

_AXES: tuple[Axis, ...] = ("step", "time", "epoch")
_N_CURVES = 40
_N_POINTS = 40
_N_METRICS = 8
"""With curves; the others are told by number."""
_N_CELLS = 50
_MAX_CELLS_BYTES = 200_000


def answers_of(state: RunState, events: Iterable[Event]) -> dict[str, Any] | None:
    """As JSON holds it, for the end of the run; None for runs without a training or a search.

    ``curves`` are, by what they go over and by metric, lists of ``[trial, places, values]``;
    ``cells`` are texts by trial.

    Parameters
    ----------
    state : RunState
        All of ``events``, folded.
    """
    if state.spec is None:
        return None
    study = state.spec.verb.study
    found = {axis: _curves(state, events, axis) for axis in _AXES}
    curves, n_metrics = found["step"]
    answers: dict[str, Any] = {
        "curves": {axis: drawn for axis, (drawn, _) in found.items() if drawn},
        "n_metrics": n_metrics,
    }
    if study is None:
        return answers if curves else None
    shares, n_trials, note = importance_of(study, complete_trials(state))
    answers["importance"] = {"shares": list(shares.items()), "n_trials": n_trials, "note": note}
    answers["cells"] = _cells(state, study.mode)
    return answers


def _curves(state: RunState, events: Iterable[Event], axis: Axis) -> tuple[dict[str, Any], int]:
    """Of the best trials and those begun last, by metric: the most important ones."""
    found = metric_curves(events, curve_trials(state, _N_CURVES), _N_POINTS, axis)
    names = by_importance(dict.fromkeys(metric for _, metric in found))
    curves: dict[str, Any] = {}
    for name in names[:_N_METRICS]:
        drawn = {
            trial: points_of(series, axis)
            for (trial, metric), series in found.items()
            if metric == name
        }
        curves[name] = [
            [trial, [place for place, _ in points], [value for _, value in points]]
            for trial, points in drawn.items()
        ]
    return curves, len(names)


def _cells(state: RunState, mode: str) -> dict[str, str]:
    """The best trials as cells, as far as there is room for them."""
    sign = 1 if mode == "min" else -1
    known = [
        (sign * trial.value, n)
        for n, trial in state.trials.items()
        if trial.value is not None and math.isfinite(trial.value)
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
