"""Successive halving without waiting: one bracket (ASHA) or several (Hyperband).

L. Li et al., "A System for Massively Parallel Hyperparameter Tuning" (arXiv:1810.05934), in the
variant that stops trials instead of pausing them: a trial that reaches a rung is compared with
those that were there before it and goes on or stops at once.  Nothing is ever paused, so a trial
that fails, falls silent or is lost cannot hold up a bracket.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort

from jupyter_ddl.spec.run import Mode
from jupyter_ddl.spec.sampling import TrialEnd

__all__ = ["AshaPruner", "Bracket", "HyperbandPruner", "bracket_weights", "n_brackets"]

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


class AshaPruner:
    """Asynchronous successive halving.

    Parameters
    ----------
    eta
        One of ``eta`` trials goes on at each rung, and rungs are ``eta`` times apart (>= 2).
    min_steps
        Step of the first rung (>= 1).
    """

    def __init__(self, mode: Mode, eta: int = 3, min_steps: int = 1) -> None:
        self._sign = 1.0 if mode == "max" else -1.0
        self._bracket = Bracket(eta, min_steps)
        self._pruned: set[int] = set()
        self._ended: set[int] = set()

    def report(self, trial: int, step: int, value: float) -> None:
        if trial in self._ended or trial in self._pruned:
            return
        if not self._bracket.climb(trial, step, _score(self._sign, value)):
            self._pruned.add(trial)

    def should_prune(self, trial: int) -> bool:
        return trial in self._pruned

    def finished(self, trial: int, state: TrialEnd) -> None:
        self._ended.add(trial)
        self._pruned.discard(trial)
        self._bracket.keep(trial)

    def restarted(self, trial: int) -> None:
        self._pruned.discard(trial)
        self._bracket.forget(trial)


class HyperbandPruner:
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

    def __init__(
        self, mode: Mode, eta: int = 3, min_steps: int = 1, max_steps: int | None = None
    ) -> None:
        self._sign = 1.0 if mode == "max" else -1.0
        self._eta = eta
        self._min_steps = min_steps
        self._brackets: list[Bracket] = []
        self._shares: list[float] = []  # cumulated
        self._last_step: dict[int, int] = {}  # of running trials, while max_steps is unknown
        self._pruned: set[int] = set()
        self._ended: set[int] = set()
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

    def should_prune(self, trial: int) -> bool:
        return trial in self._pruned

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
