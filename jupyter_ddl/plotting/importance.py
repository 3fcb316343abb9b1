"""How much each parameter has to do with a search's best trials (Optuna's PED-ANOVA)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jupyter_ddl.errors import SpecError
from jupyter_ddl.formats import format_count, format_score
from jupyter_ddl.protocol.sampling import StudySpec
from jupyter_ddl.protocol.space import Distribution, ParamValue
from jupyter_ddl.ranks.optuna_study import OptunaStudy

__all__ = ["MAX_TRIALS", "MIN_TRIALS", "Importance", "importance_of"]

MIN_TRIALS = 10
"""Fewer say nothing: the method compares the best tenth with all."""
MAX_TRIALS = 1000
"""Of more, this many are taken, evenly over the search."""

Trial = tuple[dict[str, ParamValue], float]


class Importance(NamedTuple):
    """Shares that add up to 1, the largest first; none where ``note`` says why."""

    shares: dict[str, float]
    n_trials: int
    """Trials that it rests on."""
    note: str = ""


def importance_of(study: StudySpec, trials: Sequence[Trial]) -> Importance:
    """What complete trials tell, in the order of their numbers.

    Deterministic; takes a fraction of a second.

    Parameters
    ----------
    trials
        Parameters and objective.
    """
    usable = [each for each in trials if math.isfinite(each[1]) and each[0]]
    n_usable = len(usable)
    n_kept = min(n_usable, MAX_TRIALS)
    kept = [usable[at * n_usable // n_kept] for at in range(n_kept)]
    reason = _reason(study, kept)
    if reason:
        return Importance({}, len(kept), reason)
    varied = _varied(study, kept)
    space = {name: study.space[name] for name in varied}
    try:
        # The sampler is asked for nothing.
        model = OptunaStudy(None, space, study.mode)
        model.learn(
            ({name: params[name] for name in params if name in space}, value)
            for params, value in kept
        )
        found = model.importances()
    except SpecError as error:
        return Importance({}, len(kept), f"no importance: {error.message}")
    except Exception as error:  # noqa: BLE001 - a third party's code
        told = f"no importance: Optuna raised {type(error).__name__}: {error}"
        return Importance({}, len(kept), told)
    shares = {name: share for name, share in found.items() if math.isfinite(share) and share >= 0}
    total = sum(shares.values())
    if not total > 0:
        return Importance({}, len(kept), "no parameter sets the best trials apart from the others")
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return Importance(
        {name: share / total for name, share in ordered}, len(kept), _left_out(study, shares)
    )


def _reason(study: StudySpec, trials: Sequence[Trial]) -> str:
    """Why nothing can be told; empty: something can."""
    if len(trials) < MIN_TRIALS:
        return (
            f"importance needs {MIN_TRIALS} complete trials with a number as {study.metric}; "
            f"there are {format_count(len(trials))}"
        )
    value = trials[0][1]
    if all(other == value for _, other in trials):
        return f"{study.metric} is {format_score(value)} in all {format_count(len(trials))} trials"
    if not _varied(study, trials):
        return f"each parameter has one value in all {format_count(len(trials))} trials"
    return ""


def _varied(study: StudySpec, trials: Sequence[Trial]) -> list[str]:
    """Parameters of the space that have more than one value."""
    seen: dict[str, set[tuple[type, ParamValue]]] = {}
    for params, _ in trials:
        for name, value in params.items():
            seen.setdefault(name, set()).add((type(value), value))  # True is not 1
    return [name for name in study.space if len(seen.get(name, ())) > 1]


def _left_out(study: StudySpec, shares: dict[str, float]) -> str:
    """What the shares do not tell of."""
    missing = [name for name in study.space if name not in shares]
    if not missing:
        return ""
    some = [name for name in missing if _is_conditional(study.space[name])]
    parts = []
    if some:
        parts.append(f"only some trials have {', '.join(some)}")
    others = [name for name in missing if name not in some]
    if others:
        parts.append(f"{', '.join(others)} had one value")
    return f"left out: {'; '.join(parts)}"


def _is_conditional(found: Distribution) -> bool:
    return bool(found.when)
