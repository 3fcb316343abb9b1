"""Learning curves of a search's trials: of those that run, are among the best or ended last."""

from __future__ import annotations

import math
from heapq import nlargest
from typing import TYPE_CHECKING

from jupyter_ddl.events.group_state import Series
from jupyter_ddl.events.messages import Reported
from jupyter_ddl.events.snapshot import LearningCurve
from jupyter_ddl.spec.run import SearchSpec

if TYPE_CHECKING:
    from jupyter_ddl.events.run_state import RunState

__all__ = ["learning_curves", "trial_reported"]

_N_POINTS = 40
_N_KEPT = 64
"""Curves in memory: the best and the last ended trials, and the running ones that have room."""
_N_BEST = 4
_N_RUNNING = 6


def trial_reported(state: RunState, event: Reported) -> None:
    """A point for the trial's curve, where there is room for one."""
    verb = state.spec.verb if state.spec is not None else None
    if not isinstance(verb, SearchSpec):
        return
    value = event.metrics.get(verb.metric)
    if value is None or not math.isfinite(value):
        return
    series = state.learning.get(event.trial)
    if series is None:
        if len(state.learning) >= _N_KEPT:
            return
        series = state.learning[event.trial] = Series(_N_POINTS)
    series.add(event.step, value)


def learning_curves(state: RunState, n_curves: int) -> tuple[LearningCurve, ...]:
    """By number: the best trials, the newest that run, then the last ended ones.

    A trial that has reported once has no curve.
    """
    chosen = [number for _, number in state.top[:_N_BEST]]
    chosen += nlargest(_N_RUNNING, state.running & state.learning.keys())
    chosen += reversed(state.recent)
    curves: list[LearningCurve] = []
    for number in dict.fromkeys(chosen):
        series = state.learning.get(number)
        points = () if series is None else series.drawn()
        if len(points) > 1 and len(curves) < n_curves:
            curves.append(LearningCurve(number, state.trials[number].state, points))
    return tuple(sorted(curves, key=lambda curve: curve.trial))
