"""Which trials a run shows: the best ones, the curve of all values, the last ended ones."""

from __future__ import annotations

import math
from bisect import insort

from jupyter_ddl.events.run_state import N_RECENT, N_TOP, RunState, TrialState
from jupyter_ddl.spec.run import FitSpec, SearchSpec

__all__ = ["trial_ended", "trial_valued"]

_N_CURVE = 300
_N_BEST_CURVE = 100


def trial_valued(state: RunState, trial: TrialState, value: float | None) -> None:
    """Put a finite value on the curve and, of a complete trial, among the best ones."""
    if value is None or not math.isfinite(value):
        return
    if state.n_curve % state.curve_stride == 0:
        state.curve.append((trial.number, value))
        if len(state.curve) > _N_CURVE:
            del state.curve[1::2]
            state.curve_stride *= 2
    state.n_curve += 1
    if trial.state != "complete":
        return
    verb = state.spec.verb if state.spec is not None else None
    is_min = isinstance(verb, SearchSpec | FitSpec) and verb.mode == "min"
    key = value if is_min else -value
    top = state.top
    if not top or key < top[0][0]:
        state.best_curve.append((state.n_finished, value))
        if len(state.best_curve) > _N_BEST_CURVE:
            del state.best_curve[1:-1:2]
    if len(top) < N_TOP or (key, trial.number) < top[-1]:
        insort(top, (key, trial.number))
        if len(top) > N_TOP:
            _forget(state, top.pop()[1])


def trial_ended(state: RunState, number: int) -> None:
    """Put a trial among those that ended last."""
    forgotten = state.recent[0] if len(state.recent) == N_RECENT else None
    state.recent.append(number)
    if forgotten is not None:
        _forget(state, forgotten)


def _forget(state: RunState, number: int) -> None:
    """Drop metrics and curve of a finished trial that no list shows any more."""
    if number not in state.recent and all(number != other for _, other in state.top):
        trial = state.trials[number]
        trial.metric_names = trial.metric_values = ()
        state.learning.pop(number, None)
