"""Which trials stop early: the interface of pruners, the median rule, and their choice by name."""

from __future__ import annotations

import math
from array import array
from bisect import insort
from typing import Protocol

from jupyter_ddl.errors import SpecError
from jupyter_ddl.search.halving import AshaPruner, HyperbandPruner
from jupyter_ddl.search.options import NumberOption, read_options, unknown_name
from jupyter_ddl.spec.run import Mode, PrunerSpec
from jupyter_ddl.spec.sampling import TrialEnd

__all__ = ["PRUNER_NAMES", "MedianPruner", "NoPruner", "Pruner", "make_pruner"]

PRUNER_NAMES = ("none", "median", "asha", "hyperband")

_MEDIAN_OPTIONS = {
    "n_startup_trials": NumberOption(default=5, low=0),
    "n_warmup_steps": NumberOption(default=0, low=0),
}
_ASHA_OPTIONS = {
    "eta": NumberOption(default=3, low=2),
    "min_steps": NumberOption(default=1, low=1),
}
_HYPERBAND_OPTIONS = {**_ASHA_OPTIONS, "max_steps": NumberOption(default=None, low=1)}


class Pruner(Protocol):
    """Decides from reports alone: it never waits, so no trial can hold up another.

    A decision is made at each report and stands until the trial is restarted.  Calls about
    trials that have finished are ignored.  NaN counts as the worst value there is.
    """

    def report(self, trial: int, step: int, value: float) -> None:
        """A running trial reported the metric at a step."""

    def should_prune(self, trial: int) -> bool:
        """Whether to stop the trial."""

    def finished(self, trial: int, state: TrialEnd) -> None:
        """The trial ended; its reports stay in the comparison where the pruner's rule says so."""

    def restarted(self, trial: int) -> None:
        """A new attempt at the trial begins: what it reported so far is forgotten."""


class NoPruner:
    """Lets every trial run to its end."""

    def report(self, trial: int, step: int, value: float) -> None:
        """Nothing to keep."""

    def should_prune(self, trial: int) -> bool:
        return False

    def finished(self, trial: int, state: TrialEnd) -> None:
        """Nothing to keep."""

    def restarted(self, trial: int) -> None:
        """Nothing to forget."""


class _Reports:
    """What a running trial has reported."""

    __slots__ = ("best", "by_step")

    def __init__(self) -> None:
        self.by_step: dict[int, float] = {}
        self.best = -math.inf


class MedianPruner:
    """Stops a trial whose best value so far is worse than the median of others at its step.

    The others are the complete trials that reported at this very step.  This is the median
    stopping rule of Golovin et al., "Google Vizier" (KDD 2017), in the form that Optuna's
    ``MedianPruner`` gives it; unlike there, a NaN of another trial counts as its worst value.

    Parameters
    ----------
    n_startup_trials
        Prune nothing before this many trials are complete.
    n_warmup_steps
        Prune nothing at steps below this one.
    """

    def __init__(self, mode: Mode, n_startup_trials: int = 5, n_warmup_steps: int = 0) -> None:
        self._sign = 1.0 if mode == "max" else -1.0
        self._n_startup_trials = max(1, n_startup_trials)
        self._n_warmup_steps = n_warmup_steps
        self._n_complete = 0
        self._at_step: dict[int, array[float]] = {}  # of complete trials, ascending
        self._running: dict[int, _Reports] = {}
        self._pruned: set[int] = set()
        self._ended: set[int] = set()

    def report(self, trial: int, step: int, value: float) -> None:
        if trial in self._ended:
            return
        score = -math.inf if math.isnan(value) else self._sign * value
        reports = self._running.setdefault(trial, _Reports())
        reports.by_step[step] = score
        reports.best = max(reports.best, score)
        if self._is_worse(step, reports.best):
            self._pruned.add(trial)

    def should_prune(self, trial: int) -> bool:
        return trial in self._pruned

    def finished(self, trial: int, state: TrialEnd) -> None:
        if trial in self._ended:
            return
        reports = self._running.get(trial)
        self.restarted(trial)
        self._ended.add(trial)
        if state != "complete":
            return
        self._n_complete += 1
        for step, score in reports.by_step.items() if reports is not None else ():
            insort(self._at_step.setdefault(step, array("d")), score)

    def restarted(self, trial: int) -> None:
        self._running.pop(trial, None)
        self._pruned.discard(trial)

    def _is_worse(self, step: int, best: float) -> bool:
        if self._n_complete < self._n_startup_trials or step < self._n_warmup_steps:
            return False
        if best == -math.inf:
            return True
        others = self._at_step.get(step)
        return others is not None and best < _median(others)


def _median(ascending: array[float]) -> float:
    middle, odd = divmod(len(ascending), 2)
    if odd:
        return ascending[middle]
    return ascending[middle - 1] / 2 + ascending[middle] / 2


def make_pruner(spec: PrunerSpec, mode: Mode) -> Pruner:
    """The pruner of a search.

    Raises
    ------
    SpecError
        The name or an option is unknown, or an option has a wrong value.
    """
    owner = f"pruner {spec.name}"
    if spec.name == "none":
        read_options(owner, spec.options, {})
        return NoPruner()
    if spec.name == "median":
        read = read_options(owner, spec.options, _MEDIAN_OPTIONS)
        return MedianPruner(
            mode, int(read["n_startup_trials"] or 0), int(read["n_warmup_steps"] or 0)
        )
    if spec.name == "asha":
        read = read_options(owner, spec.options, _ASHA_OPTIONS)
        return AshaPruner(mode, int(read["eta"] or 0), int(read["min_steps"] or 0))
    if spec.name == "hyperband":
        read = read_options(owner, spec.options, _HYPERBAND_OPTIONS)
        eta, min_steps, max_steps = (int(read[key] or 0) for key in _HYPERBAND_OPTIONS)
        if 0 < max_steps < min_steps:
            raise SpecError(
                f"{owner}: max_steps is {max_steps} and min_steps is {min_steps}; "
                f"max_steps must not be smaller"
            )
        return HyperbandPruner(mode, eta, min_steps, max_steps or None)
    raise unknown_name("unknown pruner", spec.name, PRUNER_NAMES, "use one of")
