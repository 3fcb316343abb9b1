"""Pruners, against hand-made cases and against Optuna's decisions."""

from __future__ import annotations

import math
import random
from typing import Any

import optuna
import pytest

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.sampling import Mode, PrunerSpec
from jupyter_ddl.studies import Pruner, make_pruner
from jupyter_ddl.studies.pruners import HyperbandPruner, bracket_weights, n_brackets


def pruner(name: str, mode: Mode = "max", **options: float) -> Pruner:
    return make_pruner(PrunerSpec(name, dict(options)), mode)


def reported(judge: Pruner, trial: int, step: int, value: float) -> bool:
    judge.report(trial, step, value)
    return judge.should_prune(trial)


def test_no_pruner_lets_everything_run() -> None:
    judge = pruner("none")

    assert not reported(judge, 0, 1, math.nan)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (PrunerSpec("asha", {"reduction_factor": 3}), "it takes eta, min_steps"),
        (PrunerSpec("asha", {"eta": 1}), "eta is 1; it must be an integer >= 2"),
        (PrunerSpec("asha", {"eta": True}), "eta is True"),
        (PrunerSpec("median", {"n_startup_trials": 1.5}), "an integer >= 0"),
        (PrunerSpec("none", {"eta": 3}), "no options"),
        (PrunerSpec("hyperband", {"min_steps": 9, "max_steps": 3}), "must not be smaller"),
    ],
)
def test_wrong_specs_are_refused_by_name(spec: PrunerSpec, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_pruner(spec, "max")


def test_first_to_arrive_at_a_rung_goes_on_and_the_next_must_beat_it() -> None:
    judge = pruner("asha", eta=2)

    assert not reported(judge, 0, 1, 0.5)
    assert reported(judge, 1, 1, 0.4)
    assert not reported(judge, 2, 1, 0.6)
    assert not reported(judge, 3, 1, 0.5)  # the second of four, tied with trial 0


def test_between_rungs_nothing_is_decided() -> None:
    judge = pruner("asha", eta=3, min_steps=2)
    reported(judge, 0, 2, 1.0)

    assert not reported(judge, 1, 1, 0.0)
    assert reported(judge, 1, 2, 0.0)


def test_one_report_may_pass_several_rungs() -> None:
    judge = pruner("asha", eta=2)
    for step in (1, 2, 4):
        reported(judge, 0, step, 1.0)

    assert not reported(judge, 1, 4, 2.0)
    assert reported(judge, 2, 4, 1.5)  # good enough at no rung: 2.0 was at all three


def test_restarted_trial_is_no_longer_compared_with_itself() -> None:
    judge = pruner("asha", mode="min", eta=2)
    reported(judge, 0, 1, 0.1)
    reported(judge, 0, 2, 0.1)
    judge.restarted(0)

    assert not reported(judge, 1, 1, 0.9)
    assert not reported(judge, 1, 2, 0.9)
    assert reported(judge, 0, 1, 1.0)
    judge.restarted(0)
    assert not judge.should_prune(0)


@pytest.mark.parametrize("name", ["asha", "hyperband", "median"])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_nan_is_worse_than_anything(name: str, mode: Mode) -> None:
    options: dict[str, float] = {"max_steps": 1} if name == "hyperband" else {}
    judge = pruner(name, mode, **options)
    for trial in range(5):
        judge.report(trial, 1, 1e300 if mode == "min" else -1e300)
        judge.finished(trial, "complete")

    assert reported(judge, 5, 1, math.nan)


def test_reports_of_a_finished_trial_are_ignored() -> None:
    for name in ("asha", "median", "hyperband"):
        judge = pruner(name)
        judge.report(0, 1, 1.0)
        judge.finished(0, "failed")
        assert not reported(judge, 0, 2, math.nan)


def test_median_needs_its_startup_trials_and_compares_at_the_same_step() -> None:
    judge = pruner("median", n_startup_trials=3, n_warmup_steps=1)
    for trial, value in enumerate((1.0, 2.0, 9.0)):
        assert not reported(judge, trial, 3, value)
        judge.finished(trial, "complete")

    assert not reported(judge, 5, 0, -1.0)
    assert not reported(judge, 5, 2, -1.0)
    assert reported(judge, 5, 3, 1.9)
    assert not reported(judge, 6, 3, 2.0)


def test_failed_trials_leave_no_trace_in_the_median() -> None:
    judge = pruner("median", n_startup_trials=1)
    judge.report(0, 1, 100.0)
    judge.finished(0, "failed")
    judge.report(1, 1, 1.0)
    judge.finished(1, "complete")

    assert not reported(judge, 2, 1, 1.0)


def test_hyperband_brackets_follow_the_paper() -> None:
    assert [n_brackets(3, 1, 81), n_brackets(3, 1, 80), n_brackets(2, 5, 4)] == [5, 4, 1]
    assert n_brackets(3, 1, 243) == 6  # floor(log(243, 3)) is 4 in floating point
    assert bracket_weights(3, 5) == [81, 34, 15, 8, 5]


def test_hyperband_shares_trials_out_in_every_stretch_of_numbers() -> None:
    judge = HyperbandPruner("max", eta=3, min_steps=1, max_steps=81)
    for start in (0, 1000, 123_456):
        numbers = [judge.bracket_number(trial) for trial in range(start, start + 143)]
        for bracket, expected in enumerate((81, 34, 15, 8, 5)):
            assert abs(numbers.count(bracket) - expected) <= 2


def test_hyperband_learns_its_length_from_the_first_complete_trial() -> None:
    judge = HyperbandPruner("max", eta=3)
    for step in range(9):
        judge.report(0, step, 1.0)
        judge.report(1, step, -1.0)
        assert not judge.should_prune(1)
    judge.finished(2, "complete")  # it never reported
    judge.finished(3, "failed")
    assert judge.bracket_number(0) is None

    judge.finished(0, "complete")

    assert {judge.bracket_number(trial) for trial in range(20)} == {0, 1, 2}


class Twins:
    """The same reports to one of our pruners and to one of Optuna's."""

    def __init__(self, ours: Pruner, theirs: Any, mode: Mode) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.ours = ours
        self.study = optuna.create_study(
            direction="maximize" if mode == "max" else "minimize", pruner=theirs
        )
        self.trials: dict[int, Any] = {}

    def play(self, rng: random.Random, n_trials: int, n_steps: int) -> int:
        """Random interleaving of at most six trials; the number of trials pruned."""
        steps: dict[int, int] = {}
        n_started = n_pruned = 0
        while steps or n_started < n_trials:
            if n_started < n_trials and ((len(steps) < 6 and rng.random() < 0.5) or not steps):
                self.trials[n_started] = self.study.ask()
                steps[n_started] = 0
                n_started += 1
                continue
            trial = rng.choice(sorted(steps))
            steps[trial] += 1
            value = rng.randrange(200) / 8  # ties occur
            self.trials[trial].report(value, steps[trial])
            theirs = self.trials[trial].should_prune()
            self.ours.report(trial, steps[trial], value)
            assert self.ours.should_prune(trial) == theirs, (trial, steps[trial])
            n_pruned += theirs
            self.finish(rng, trial, steps, theirs, n_steps, value)
        return n_pruned

    def finish(
        self,
        rng: random.Random,
        trial: int,
        steps: dict[int, int],
        pruned: bool,
        n_steps: int,
        value: float,
    ) -> None:
        states = optuna.trial.TrialState
        if pruned:
            self.study.tell(self.trials[trial], state=states.PRUNED)
            self.ours.finished(trial, "pruned")
        elif rng.random() < 0.02:
            self.study.tell(self.trials[trial], state=states.FAIL)
            self.ours.finished(trial, "failed")
        elif steps[trial] == n_steps:
            self.study.tell(self.trials[trial], value)
            self.ours.finished(trial, "complete")
        else:
            return
        del steps[trial]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("eta", [2, 3, 4])
def test_asha_decides_as_optuna_does(mode: Mode, eta: int) -> None:
    theirs = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=eta)
    twins = Twins(pruner("asha", mode, eta=eta), theirs, mode)

    assert twins.play(random.Random(eta), n_trials=80, n_steps=10) > 20


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_median_decides_as_optuna_does(mode: Mode, warmup: int) -> None:
    theirs = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=warmup)
    twins = Twins(pruner("median", mode, n_warmup_steps=warmup), theirs, mode)

    assert twins.play(random.Random(warmup), n_trials=80, n_steps=8) > 10
