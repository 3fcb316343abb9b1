"""A study whose sampler runs in another process: asks go out, proposals come back."""

from __future__ import annotations

import math

import pytest

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.sampling import SamplerSpec, TrialRecord
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, RandInt, Uniform
from jupyter_ddl.studies import Exhausted, NeedsRemoteAsk, Proposal, Study, Wait
from jupyter_ddl.verbs.search import Search

Params = dict[str, ParamValue]
SPACE: dict[str, Distribution] = {
    "lr": Uniform(1e-4, 1e-1, log=True),
    "width": Choice((64, 128, 256)),
    "depth": RandInt(1, 8),
    "drop": Uniform(0.0, 0.5, step=0.1),
}


def supply_all(study: Study, proposed: Params, upto: int) -> None:
    for number in range(upto):
        answer = study.ask()
        assert isinstance(answer, NeedsRemoteAsk)
        assert answer.number == number
        assert study.supply(number, proposed) == Proposal(number, proposed)


ODD: Params = {"lr": 0.05, "width": 64, "depth": 2, "drop": 0.1}


def remote_study(window: int = 2, n_trials: int = 24) -> Study:
    spec = Search("loss", "min", n_trials, SPACE, SamplerSpec("mine:Sampler"))
    return Study(spec, seed=0, window=window)


def test_remote_ask_carries_the_results_that_became_visible() -> None:
    study = remote_study(window=2)
    supply_all(study, ODD, 2)
    assert study.ask() == Wait((0,))
    study.tell(1, "complete", 1.0)
    study.tell(0, "pruned", 2.0, step=3)

    answer = study.ask()
    assert answer == NeedsRemoteAsk(2, (TrialRecord(0, ODD, "pruned", 2.0, 3),))
    assert study.ask() == Wait(())
    study.supply(2, ODD)
    assert study.ask() == NeedsRemoteAsk(3, (TrialRecord(1, ODD, "complete", 1.0),))


def test_sampler_that_proposes_nothing_is_asked_again_with_one_more_result() -> None:
    study = remote_study(window=3)
    supply_all(study, ODD, 3)
    for number in (0, 1, 2):
        study.tell(number, "complete", float(number))

    seen = []
    while isinstance(answer := study.ask(), NeedsRemoteAsk):
        seen.append([record.number for record in answer.tells])
        assert study.supply(3, None) is None

    assert seen == [[0], [1], [2]]
    assert answer == Exhausted("the sampler proposed nothing more after 3 trials")


def test_after_a_refusal_the_next_trial_has_its_usual_window_again() -> None:
    study = remote_study(window=2)
    supply_all(study, ODD, 2)
    study.tell(0, "complete", 0.0)
    study.ask()
    study.supply(2, None)
    assert study.ask() == Wait((1,))
    study.tell(1, "complete", 1.0)
    study.ask()
    study.supply(2, ODD)

    assert isinstance(study.ask(), NeedsRemoteAsk)  # trial 3 needs 0 and 1, not 2


def test_remote_replay_asks_again_and_keeps_the_recorded_parameters() -> None:
    other = {**ODD, "depth": 5}
    study = remote_study(window=1)
    study.replay([TrialRecord(0, ODD, "complete", 1.0), TrialRecord(1, ODD)])

    assert study.ask() == NeedsRemoteAsk(0, (), replayed=True)
    assert study.supply(0, ODD) is None
    assert study.take_notices() == ()
    first = TrialRecord(0, ODD, "complete", 1.0)
    assert study.ask() == NeedsRemoteAsk(1, (first,), replayed=True)
    assert study.supply(1, other) is None
    assert "trial 1" in study.take_notices()[0]
    assert study.ask() == Wait((1,))

    study.tell(1, "complete", 3.0)
    assert study.ask() == NeedsRemoteAsk(2, (TrialRecord(1, ODD, "complete", 3.0),))


def test_results_left_at_the_end_are_handed_over_once() -> None:
    study = remote_study(window=2, n_trials=2)
    supply_all(study, ODD, 2)
    study.tell(1, "failed")
    study.tell(0, "complete", 1.0)

    assert [record.number for record in study.remaining_tells()] == [0, 1]
    assert study.remaining_tells() == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 1.0}, "'lr'; expected a number in"),
        ({"lr": math.nan}, "'lr'"),
        ({"lr": "0.01"}, r"'0.01' \(str\) for 'lr'"),
        ({"depth": 2.0}, "'depth'; expected an integer"),
        ({"depth": True}, "'depth'"),
        ({"depth": 9}, "'depth'"),
        ({"width": 65}, "'width'; expected one of 64, 128, 256"),
        ({"width": 64.0}, "'width'"),
        ({"drop": 0.15}, "'drop'.*in steps of 0.1"),
        ({"momentum": 1}, "'momentum', which is not a parameter"),
    ],
)
def test_wrong_proposals_of_own_samplers_name_the_parameter(change: Params, message: str) -> None:
    study = remote_study()
    study.ask()

    with pytest.raises(SpecError, match=message):
        study.supply(0, {**ODD, **change})


def test_proposal_without_a_parameter_names_it() -> None:
    study = remote_study()
    study.ask()

    with pytest.raises(SpecError, match="no value for 'width'"):
        study.supply(0, {key: value for key, value in ODD.items() if key != "width"})


def test_steps_and_integers_are_accepted_as_floats_where_a_float_is_meant() -> None:
    study = remote_study()
    study.ask()

    proposal = study.supply(0, {**ODD, "drop": 0})

    assert proposal is not None
    assert proposal.params["drop"] == 0.0
    assert type(proposal.params["drop"]) is float
