"""Differential evolution, rand/1/bin, in synchronous generations.

R. Storn and K. Price, "Differential Evolution - A Simple and Efficient Heuristic for Global
Optimization over Continuous Spaces", Journal of Global Optimization 11 (1997) 341-359.
Vectors live in the unit cube, so a log scale, an integer or a choice needs no special case
beyond its decoding (integers and choices by rounding down to an index).
"""

from __future__ import annotations

import math
from typing import TypeAlias

from jupyter_ddl.protocol.sampling import StudySpec, TrialRecord
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.studies.axes import active, counter_draws, make_axes
from jupyter_ddl.studies.options import NumberOption, read_options
from jupyter_ddl.studies.samplers import LocalSampler, independence

__all__ = ["EvolutionSampler"]

_OPTIONS = {
    # rand/1 needs a target and three others.
    "population": NumberOption(default=None, low=4),
    "weight": NumberOption(default=0.8, low=0.0, high=2.0, real=True),
    "crossover": NumberOption(default=0.9, low=0.0, high=1.0, real=True),
}

_Vector: TypeAlias = tuple[float, ...]
_Score: TypeAlias = tuple[int, float]
"""Smaller is better; complete trials before pruned ones before failed ones."""

_WORST: _Score = (2, 0.0)


class EvolutionSampler(LocalSampler):
    """Proposes trial n as member ``n % population`` of generation ``n // population``.

    A generation is asked only when every trial of the one before has ended, whatever way:
    a failed or cancelled trial loses against its parent.  A pruned one wins only
    against a pruned or failed parent, since its value was not measured at the end.

    Parameters
    ----------
    options
        ``population`` (default ``max(8, 5 * parameters)``, at most ``n_trials``), ``weight``
        (F, default 0.8), ``crossover`` (CR, default 0.9).
    """

    def __init__(self, spec: StudySpec, seed: int, window: int) -> None:
        read = read_options("sampler de", spec.sampler.options, _OPTIONS)
        self._axes = make_axes(spec.space)
        self.notices = independence("de", spec.space)
        self._sign = -1.0 if spec.mode == "max" else 1.0
        self._seed = seed
        size = int(read["population"] or max(8, 5 * len(self._axes)))
        self._n_members = min(size, spec.n_trials)
        self._weight = read["weight"] or 0.0
        self._crossover = read["crossover"] or 0.0
        self._members: list[_Vector] = []
        self._scores: list[_Score] = []
        self._asked: dict[int, _Vector] = {}

    def horizon(self, number: int) -> int:
        """The last trial of the previous generation."""
        return number // self._n_members * self._n_members - 1

    def ask(self, number: int) -> dict[str, ParamValue]:
        if number < self._n_members:
            vector = tuple(counter_draws(self._seed, number, len(self._axes)))
        else:
            vector = self._offspring(number)
        self._asked[number] = vector
        return self._decode(vector)

    def tell(self, record: TrialRecord) -> None:
        vector = self._asked.pop(record.number)
        if active(self._axes, self._decode(vector)) != record.params:
            vector = tuple(
                axis.to_unit(record.params[axis.name]) if axis.name in record.params else unit
                for axis, unit in zip(self._axes, vector, strict=True)
            )
        score = self._score(record)
        member = record.number % self._n_members
        if record.number < self._n_members:
            self._members.append(vector)
            self._scores.append(score)
        elif score <= self._scores[member] and score != _WORST:
            self._members[member] = vector
            self._scores[member] = score

    def _offspring(self, number: int) -> _Vector:
        size, n_axes = self._n_members, len(self._axes)
        target = number % size
        draws = counter_draws(self._seed, number, 4 + n_axes)
        others = [member for member in range(size) if member != target]
        picked = [others.pop(int(draw * len(others))) for draw in draws[:3]]
        base, left, right = (self._members[member] for member in picked)
        forced = int(draws[3] * n_axes)  # at least one coordinate comes from the mutant
        parent = self._members[target]
        return tuple(
            _reflected(base[axis] + self._weight * (left[axis] - right[axis]))
            if axis == forced or draws[4 + axis] < self._crossover
            else parent[axis]
            for axis in range(n_axes)
        )

    def _decode(self, vector: _Vector) -> dict[str, ParamValue]:
        return {
            axis.name: axis.from_unit(unit) for axis, unit in zip(self._axes, vector, strict=True)
        }

    def _score(self, record: TrialRecord) -> _Score:
        value = record.value
        if record.state not in ("complete", "pruned") or value is None or math.isnan(value):
            return _WORST
        return (0 if record.state == "complete" else 1, self._sign * value)


def _reflected(unit: float) -> float:
    """Back into [0, 1], mirrored at the bound that was passed."""
    folded = abs(unit) % 2.0
    return 2.0 - folded if folded > 1.0 else folded
