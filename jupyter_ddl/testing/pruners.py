"""What every pruner keeps, as tests that the author of one runs.

::

    class TestMine(PrunerContract):
        @pytest.fixture
        def pruner(self):
            return PrunerSpec("mine", {"patience": 3})
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import pytest

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.sampling import Mode, PrunerSpec, TrialEnd
from jupyter_ddl.studies.pruners import Pruner, make_pruner

__all__ = ["Call", "PrunerContract", "calls_of_a_search", "decisions"]

_ENDS: tuple[TrialEnd, ...] = ("complete", "failed", "pruned", "cancelled")


class Call(NamedTuple):
    """One call of a pruner's hook."""

    hook: Literal["report", "finished", "restarted"]
    trial: int
    step: int = 0
    value: float = 0.0
    state: TrialEnd = "complete"


def calls_of_a_search(seed: int, n_trials: int = 24, n_steps: int = 12) -> list[Call]:
    """Trials side by side that report, fail, are repeated and end; the same for the same seed."""
    rng = random.Random(seed)
    quality = [rng.random() for _ in range(n_trials)]
    step_of: dict[int, int] = {}
    waiting = list(range(n_trials))
    found: list[Call] = []
    while waiting or step_of:
        while waiting and len(step_of) < 4:
            step_of[waiting.pop(0)] = 0
        trial = rng.choice(list(step_of))
        draw = rng.random()
        if draw < 0.03:
            found.append(Call("restarted", trial))
            step_of[trial] = 0
        elif draw < 0.06 or step_of[trial] == n_steps:
            state: TrialEnd = "complete" if step_of[trial] == n_steps else rng.choice(_ENDS)
            found.append(Call("finished", trial, state=state))
            del step_of[trial]
        else:
            value = quality[trial] * step_of[trial] + 0.1 * rng.gauss(0.0, 1.0)
            value = rng.choice((math.nan, math.inf, -math.inf)) if draw > 0.98 else value
            found.append(Call("report", trial, step_of[trial], value))
            step_of[trial] += 1
    return found


def decisions(pruner: Pruner, calls: Iterable[Call]) -> list[bool]:
    """What it decides after each report."""
    return [
        pruner.should_prune(call.trial) for call in _made(pruner, calls) if call.hook == "report"
    ]


def _made(pruner: Pruner, calls: Iterable[Call]) -> Iterator[Call]:
    for call in calls:
        if call.hook == "report":
            pruner.report(call.trial, call.step, call.value)
        elif call.hook == "finished":
            pruner.finished(call.trial, call.state)
        else:
            pruner.restarted(call.trial)
        yield call


class PrunerContract:
    """Subclass it, and override the fixture ``pruner``."""

    @pytest.fixture
    def pruner(self) -> PrunerSpec:
        """The pruner under test, with its options."""
        raise NotImplementedError("override the fixture `pruner`")

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_the_same_reports_come_to_the_same_decisions(
        self, pruner: PrunerSpec, mode: Mode, seed: int
    ) -> None:
        calls = calls_of_a_search(seed)
        first = decisions(make_pruner(pruner, mode), calls)
        assert all(type(each) is bool for each in first)
        assert decisions(make_pruner(pruner, mode), calls) == first

    @pytest.mark.parametrize("seed", range(5))
    def test_less_is_to_min_what_more_is_to_max(self, pruner: PrunerSpec, seed: int) -> None:
        calls = calls_of_a_search(seed)
        turned = [call._replace(value=-call.value) for call in calls]
        expected = decisions(make_pruner(pruner, "max"), calls)
        assert decisions(make_pruner(pruner, "min"), turned) == expected

    def test_nothing_is_decided_on_a_trial_that_is_not_known(self, pruner: PrunerSpec) -> None:
        made = make_pruner(pruner, "max")
        assert made.should_prune(5) is False
        made.restarted(5)
        made.finished(6, "cancelled")
        assert made.should_prune(5) is False
        assert made.should_prune(6) is False

    @pytest.mark.parametrize("seed", range(5))
    def test_a_new_attempt_begins_without_a_verdict(self, pruner: PrunerSpec, seed: int) -> None:
        made = make_pruner(pruner, "max")
        for call in _made(made, calls_of_a_search(seed)):
            if made.should_prune(call.trial):
                made.restarted(call.trial)
                assert made.should_prune(call.trial) is False

    @pytest.mark.parametrize("seed", range(5))
    def test_what_is_said_of_a_trial_after_its_end_changes_nothing(
        self, pruner: PrunerSpec, seed: int
    ) -> None:
        calls = calls_of_a_search(seed)
        late: list[Call] = []
        for call in calls:
            late.append(call)
            if call.hook == "finished":
                late += [Call("report", call.trial, 99, -1e9), Call("finished", call.trial)]
        made = make_pruner(pruner, "max")
        seen = [
            made.should_prune(call.trial)
            for call in _made(made, late)
            if call.hook == "report" and call.step != 99
        ]
        assert seen == decisions(make_pruner(pruner, "max"), calls)

    def test_an_option_that_it_does_not_have_is_refused_by_name(self, pruner: PrunerSpec) -> None:
        wrong = PrunerSpec(pruner.name, {**pruner.options, "no_such_option": 1})
        with pytest.raises(SpecError, match="no_such_option"):
            make_pruner(wrong, "max")
