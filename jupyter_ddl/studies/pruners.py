"""Which trials stop early: what a pruner is, and those that are built in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import ClassVar

from jupyter_ddl.errors import SpecError
from jupyter_ddl.plugins import PRUNERS
from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.sampling import Mode, PrunerSpec, TrialEnd
from jupyter_ddl.studies.options import NumberOption, read_options

__all__ = [
    "AshaPruner",
    "Bracket",
    "HyperbandPruner",
    "MedianPruner",
    "NoPruner",
    "NumberOption",
    "Pruner",
    "bracket_weights",
    "hopeless",
    "make_pruner",
    "n_brackets",
    "n_failures_to_stop",
]


# Whether a search is hopeless: its first trials all failed, for one reason.


def n_failures_to_stop(max_parallel: int) -> int:
    """How many equal failures in a row from the start end a search."""
    return max(3, 2 * max_parallel)


def hopeless(n_succeeded: int, failures: Sequence[Failure], max_parallel: int) -> Failure | None:
    """The cause for which to stop the run now, or None to go on.

    Parameters
    ----------
    n_succeeded
        Trials that ended complete or pruned: one is reason enough to go on.
    failures
        Why trials failed for good, in the order in which they ended.  Only the first
        ``n_failures_to_stop(max_parallel)`` count.

    Returns
    -------
    Failure | None
        The first failure, when all of those have the same exception at the same line.
    """
    n_needed = n_failures_to_stop(max_parallel)
    if n_succeeded or len(failures) < n_needed:
        return None
    first = failures[0]
    cause = (first.type_name, first.line)
    if all((failures[i].type_name, failures[i].line) == cause for i in range(1, n_needed)):
        return first
    return None


# What a pruner is.


class Pruner(ABC):
    """Decides from reports alone which trials stop early.

    A package adds one by the entry point group ``jupyter_ddl.pruners``: a name, and a class derived
    from this one.  ``jupyter_ddl.testing.pruners`` has the tests that each one is to pass.

    It is made in the controller, once per search, with the mode and its options by name, and all
    calls come from the controller's event loop, one at a time, in the order of the ledger.  Reports
    wait meanwhile: a call may take microseconds, never read a file, wait or ask for the time.  A
    search that is resumed makes a new pruner and tells it everything again, so the same calls have
    to come to the same decisions.

    A decision is made at each report and stands until the trial is restarted: a pruner never waits
    for other trials, so none can hold up another.  Calls about trials that it does not know, or
    that have finished, are ignored.  NaN counts as the worst value there is.
    """

    options: ClassVar[Mapping[str, NumberOption]] = {}
    """What ``__init__`` takes beside the mode, ``"max"`` or ``"min"``."""

    def __init__(self, mode: Mode) -> None:  # noqa: B027 - most pruners have a mode to keep
        """Begin with no trial.

        Raises
        ------
        SpecError
            Two options contradict each other; each alone has been checked.
        """

    @abstractmethod
    def report(self, trial: int, step: int, value: float) -> None:
        """A running trial reported the metric at a step."""

    @abstractmethod
    def should_prune(self, trial: int) -> bool:
        """Whether to stop the trial; asked after each report."""

    @abstractmethod
    def finished(self, trial: int, state: TrialEnd) -> None:
        """The trial ended; its reports stay in the comparison where the pruner's rule says so."""

    @abstractmethod
    def restarted(self, trial: int) -> None:
        """A new attempt at the trial begins: what it reported so far is forgotten."""


def make_pruner(spec: PrunerSpec, mode: Mode) -> Pruner:
    """The pruner of a search.

    Raises
    ------
    OptionError
        There is no such pruner.
    PluginError
        Its package cannot be imported.
    SpecError
        An option is unknown, or has a wrong value.
    """
    kind: type[Pruner] = PRUNERS.load(spec.name)
    return kind(mode, **read_options(f"pruner {spec.name}", spec.options, kind.options))


# Successive halving without waiting: one bracket (ASHA) or several (Hyperband).
#
# L. Li et al., "A System for Massively Parallel Hyperparameter Tuning" (arXiv:1810.05934), in the
# variant that stops trials instead of pausing them: a trial that reaches a rung is compared with
# those that were there before it and goes on or stops at once.  Nothing is ever paused, so a trial
# that fails, falls silent or is lost cannot hold up a bracket.

_ASHA_OPTIONS = {
    "eta": NumberOption(default=3, low=2),
    "min_steps": NumberOption(default=1, low=1),
}
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class Bracket:
    """Rungs at ``min_steps * eta**k``, and the scores that trials had on reaching them.

    A trial reaches a rung with its first report at this step or later.  It goes on if its
    score is among the best ``max(1, n // eta)`` of the n scores there, its own included and
    ties counted in its favour.  So the first to arrive always goes on, and the best score
    of a rung is never stopped there.  A score of minus infinity (NaN) never goes on.
    """

    def __init__(self, eta: int, min_steps: int) -> None:
        self._eta = eta
        self._min_steps = min_steps
        self._rungs: list[array[float]] = []  # scores, ascending
        self._reached: dict[int, list[float]] = {}  # of running trials, by rung

    def climb(self, trial: int, step: int, score: float) -> bool:
        """Take the trial up all rungs that ``step`` reaches; whether it goes on."""
        reached = self._reached.setdefault(trial, [])
        while step >= self._min_steps * self._eta ** len(reached):
            if len(self._rungs) == len(reached):
                self._rungs.append(array("d"))
            rung = self._rungs[len(reached)]
            insort(rung, score)
            reached.append(score)
            if score == -math.inf or score < rung[-max(1, len(rung) // self._eta)]:
                return False
        return True

    def keep(self, trial: int) -> None:
        """The trial has ended; its scores go on to count."""
        self._reached.pop(trial, None)

    def forget(self, trial: int) -> None:
        """Take the trial's scores out of all rungs."""
        for rung, score in zip(self._rungs, self._reached.pop(trial, ()), strict=False):
            del rung[bisect_left(rung, score)]


class _Verdicts(Pruner):
    """Remembers which running trials are to stop, and which trials have ended."""

    def __init__(self, mode: Mode) -> None:
        self._sign = 1.0 if mode == "max" else -1.0
        self._pruned: set[int] = set()
        self._ended: set[int] = set()

    def should_prune(self, trial: int) -> bool:
        return trial in self._pruned


class AshaPruner(_Verdicts):
    """Asynchronous successive halving.

    Parameters
    ----------
    eta
        One of ``eta`` trials goes on at each rung, and rungs are ``eta`` times apart (>= 2).
    min_steps
        Step of the first rung (>= 1).
    """

    options = _ASHA_OPTIONS

    def __init__(self, mode: Mode, eta: int = 3, min_steps: int = 1) -> None:
        super().__init__(mode)
        self._bracket = Bracket(eta, min_steps)

    def report(self, trial: int, step: int, value: float) -> None:
        if trial in self._ended or trial in self._pruned:
            return
        if not self._bracket.climb(trial, step, _score(self._sign, value)):
            self._pruned.add(trial)

    def finished(self, trial: int, state: TrialEnd) -> None:
        self._ended.add(trial)
        self._pruned.discard(trial)
        self._bracket.keep(trial)

    def restarted(self, trial: int) -> None:
        self._pruned.discard(trial)
        self._bracket.forget(trial)


class HyperbandPruner(_Verdicts):
    """Several brackets side by side: some stop trials early, some give them time.

    Li et al., "Hyperband" (JMLR 18, 2018), each bracket run as ASHA.  Bracket b has its first
    rung at ``min_steps * eta**b``, and trial n belongs to a bracket by its number alone, in
    proportion to the trials that Hyperband starts in each.

    Parameters
    ----------
    max_steps
        Steps of a whole trial.  None: learned from the first trial that completes; until
        then nothing is pruned.
    """

    options = {**_ASHA_OPTIONS, "max_steps": NumberOption(default=None, low=1)}

    def __init__(
        self, mode: Mode, eta: int = 3, min_steps: int = 1, max_steps: int | None = None
    ) -> None:
        if max_steps is not None and max_steps < min_steps:
            raise SpecError(
                f"pruner hyperband: max_steps is {max_steps} and min_steps is {min_steps}; "
                f"max_steps must not be smaller"
            )
        super().__init__(mode)
        self._eta = eta
        self._min_steps = min_steps
        self._brackets: list[Bracket] = []
        self._shares: list[float] = []  # cumulated
        self._last_step: dict[int, int] = {}  # of running trials, while max_steps is unknown
        if max_steps is not None:
            self._open_brackets(max_steps)

    def report(self, trial: int, step: int, value: float) -> None:
        if trial in self._ended or trial in self._pruned:
            return
        bracket = self._bracket_of(trial)
        if bracket is None:
            self._last_step[trial] = max(step, self._last_step.get(trial, 0))
        elif not bracket.climb(trial, step, _score(self._sign, value)):
            self._pruned.add(trial)

    def finished(self, trial: int, state: TrialEnd) -> None:
        if trial in self._ended:
            return
        self._ended.add(trial)
        self._pruned.discard(trial)
        last_step = self._last_step.pop(trial, None)
        bracket = self._bracket_of(trial)
        if bracket is not None:
            bracket.keep(trial)
        elif state == "complete" and last_step is not None:
            self._open_brackets(last_step + 1)  # steps are usually counted from 0

    def restarted(self, trial: int) -> None:
        self._pruned.discard(trial)
        self._last_step.pop(trial, None)
        bracket = self._bracket_of(trial)
        if bracket is not None:
            bracket.forget(trial)

    def bracket_number(self, trial: int) -> int | None:
        """The bracket that a trial belongs to; None while ``max_steps`` is unknown."""
        if not self._shares:
            return None
        # Multiples of the golden ratio spread evenly, so every stretch of trial numbers
        # is divided among the brackets in nearly the same proportion.
        position = (trial * _GOLDEN) % 1.0
        for number, share in enumerate(self._shares):
            if position < share:
                return number
        return len(self._shares) - 1

    def _bracket_of(self, trial: int) -> Bracket | None:
        number = self.bracket_number(trial)
        return None if number is None else self._brackets[number]

    def _open_brackets(self, max_steps: int) -> None:
        n = n_brackets(self._eta, self._min_steps, max_steps)
        weights = bracket_weights(self._eta, n)
        total = sum(weights)
        self._brackets = [
            Bracket(self._eta, self._min_steps * self._eta**number) for number in range(n)
        ]
        self._shares = [sum(weights[: number + 1]) / total for number in range(n)]
        self._last_step.clear()


def n_brackets(eta: int, min_steps: int, max_steps: int) -> int:
    """``floor(log_eta(max_steps / min_steps)) + 1``, exactly; at least 1."""
    n = 1
    while min_steps * eta**n <= max_steps:
        n += 1
    return n


def bracket_weights(eta: int, n: int) -> list[int]:
    """Relative number of trials that Hyperband (its Algorithm 1) starts in each bracket."""
    return [math.ceil(n * eta ** (n - 1 - number) / (n - number)) for number in range(n)]


def _score(sign: float, value: float) -> float:
    """Bigger is better; NaN is the worst."""
    return -math.inf if math.isnan(value) else sign * value


class NoPruner(Pruner):
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


class MedianPruner(_Verdicts):
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

    options = {
        "n_startup_trials": NumberOption(default=5, low=0),
        "n_warmup_steps": NumberOption(default=0, low=0),
    }

    def __init__(self, mode: Mode, n_startup_trials: int = 5, n_warmup_steps: int = 0) -> None:
        super().__init__(mode)
        self._n_startup_trials = max(1, n_startup_trials)
        self._n_warmup_steps = n_warmup_steps
        self._n_complete = 0
        self._at_step: dict[int, array[float]] = {}  # of complete trials, ascending
        self._running: dict[int, _Reports] = {}

    def report(self, trial: int, step: int, value: float) -> None:
        if trial in self._ended:
            return
        score = _score(self._sign, value)
        reports = self._running.setdefault(trial, _Reports())
        reports.by_step[step] = score
        reports.best = max(reports.best, score)
        if self._is_worse(step, reports.best):
            self._pruned.add(trial)

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
