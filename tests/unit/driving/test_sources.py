"""Studies that take long: asked one thing at a time, and never in vain."""

from __future__ import annotations

import pytest

from jupyter_ddl.driving.machine import AskSampler, Think
from jupyter_ddl.driving.sources import NotYet, StudySource
from jupyter_ddl.errors import SpecError, TrialError
from jupyter_ddl.protocol.sampling import SamplerSpec, TrialRecord
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.studies.study import Exhausted, Proposal, Study
from jupyter_ddl.verbs.search import Search


class SlowStudy(Study):
    @property
    def is_slow(self) -> bool:
        return True


def source_of(sampler: str, *, is_slow: bool, window: int = 1) -> StudySource:
    verb = Search("loss", "min", 2, {"x": Uniform(0.0, 1.0)}, sampler=SamplerSpec(sampler))
    return StudySource((SlowStudy if is_slow else Study)(verb, 1, window))


def done(number: int) -> TrialRecord:
    return TrialRecord(number, {"x": 0.5}, "complete", 1.0)


def test_a_slow_study_that_waits_for_a_result_is_not_asked_again_before_one_comes() -> None:
    source = source_of("tpe", is_slow=True)
    assert source.ask() == NotYet(Think())
    assert source.ask() == NotYet(), "it thinks already"
    source.answered(source.study.ask())
    assert isinstance(source.ask(), Proposal)
    assert source.ask() == NotYet(Think())
    source.answered(source.study.ask())
    assert source.ask() == NotYet(text="waiting for trial 0"), "its last answer was to wait"
    source.tell(done(0))
    assert source.ask() == NotYet(Think())


def test_results_that_come_while_it_thinks_are_told_afterwards() -> None:
    source = source_of("tpe", is_slow=True)
    source.ask()
    source.answered(source.study.ask())
    source.ask()
    source.ask()
    source.tell(done(0))
    assert source.study.ask().trials == (0,)  # type: ignore[union-attr]
    source.answered(source.study.ask())
    source.ask()
    source.answered(source.study.ask())
    assert isinstance(source.ask(), Proposal)


def test_an_own_sampler_is_asked_for_one_trial_after_the_other() -> None:
    source = source_of("own:Sampler", is_slow=False, window=2)
    for number in range(2):
        assert source.ask() == NotYet(AskSampler(number, ()))
        assert source.ask() == NotYet()
        source.answered({"x": 0.25})
        assert source.ask() == Proposal(number, {"x": 0.25})
    assert isinstance(source.ask(), Exhausted)


def test_what_a_sampler_raised_is_raised_by_the_next_ask() -> None:
    source = source_of("own:Sampler", is_slow=False)
    source.ask()
    source.failed(TrialError("the sampler's ask() failed"))
    with pytest.raises(TrialError, match="ask"):
        source.ask()
    source = source_of("own:Sampler", is_slow=False)
    source.ask()
    source.answered({"x": "much"})
    with pytest.raises(SpecError, match="x"):
        source.ask()
