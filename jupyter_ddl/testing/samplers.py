"""What every sampler keeps, as tests that the author of one runs.

::

    class TestMine(SamplerContract):
        @pytest.fixture
        def sampler(self):
            return SamplerSpec("my_package:MySampler")

No process is started: a sampler that would live in a rank is served here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from jupyter_ddl.errors import SpaceError
from jupyter_ddl.protocol.sampling import (
    Ask,
    Asked,
    Mode,
    SamplerFailed,
    SamplerSpec,
    SamplerStart,
    Tell,
    TrialEnd,
    TrialRecord,
)
from jupyter_ddl.protocol.space import Choice, Distribution, OneOf, ParamValue, RandInt, Uniform
from jupyter_ddl.ranks.sampler_host import SamplerHost
from jupyter_ddl.studies.axes import check_params, make_axes
from jupyter_ddl.studies.study import Exhausted, NeedsRemoteAsk, Proposal, Study
from jupyter_ddl.verbs.search import Search as SearchVerb

__all__ = ["BRANCHES", "SPACE", "SamplerContract", "Search"]

SPACE: dict[str, Distribution] = {
    "rate": Uniform(0.001, 1.0, log=True),
    "depth": RandInt(1, 9, step=2),
    "kind": Choice(("relu", "tanh", "none")),
}
"""One of each kind; for samplers that need a finite one, override the fixture ``space``."""

BRANCHES: dict[str, Distribution] = {
    "model": Choice(("svm", "forest", "mean")),
    "kernel": Choice(("rbf", "linear"), when=((OneOf("model", ("svm",)),),)),
    "gamma": RandInt(1, 5, when=((OneOf("model", ("svm",)), OneOf("kernel", ("rbf",))),)),
    "depth": RandInt(2, 9, when=((OneOf("model", ("forest",)),),)),
    "seed": RandInt(0, 1),
}
"""Parameters that only some trials have."""

Params = dict[str, ParamValue]
End = Callable[[int, Params], tuple[TrialEnd, float | None]]


class Search:
    """One search, driven as a run drives it: trials are asked for, end in any order, are told."""

    def __init__(
        self,
        sampler: SamplerSpec,
        space: Mapping[str, Distribution],
        *,
        seed: int = 7,
        n_trials: int = 20,
        window: int = 4,
        mode: Mode = "min",
        resolve: Callable[[str], object] | None = None,
    ) -> None:
        spec = SearchVerb(
            metric="loss", mode=mode, n_trials=n_trials, space=dict(space), sampler=sampler
        )
        self.study = Study(spec, seed, window)
        self.params: list[Params] = []
        """Of every trial, by number."""
        self.records: list[TrialRecord] = []
        """Of trials that have ended, in the order of their ends."""
        self.notices: list[str] = []
        self.is_over = False
        """Whether there will be no further trial."""
        self._open: list[int] = []
        start = SamplerStart(
            name=sampler.name,
            in_notebook=sampler.in_notebook,
            seed=seed,
            metric="loss",
            mode=mode,
            n_trials=n_trials,
            space=dict(space),
            options=sampler.options,
        )
        self._host = SamplerHost(start, resolve or _no_notebook)

    def ask(self) -> bool:
        """Ask for one more trial; whether there is one now."""
        while True:
            answer = self.study.ask()
            if isinstance(answer, NeedsRemoteAsk):
                for record in answer.tells:
                    self._send(Tell(record))
                reply = self._send(Ask(answer.number))
                assert isinstance(reply, Asked), f"ask() came to {reply}"
                proposal = self.study.supply(answer.number, reply.params)
                if proposal is None:
                    continue
                answer = proposal
            if not isinstance(answer, Proposal):
                self.is_over = isinstance(answer, Exhausted)
                return False
            assert answer.number == len(self.params), "numbers come in order"
            self.params.append(answer.params)
            self._open.append(answer.number)
            return True

    def end(self, number: int, state: TrialEnd, value: float | None) -> None:
        """Have a trial end."""
        self._open.remove(number)
        step = None if value is None else 3
        self.study.tell(number, state, value, step)
        self.records.append(TrialRecord(number, self.params[number], state, value, step))

    def run(self, end: End, rng: random.Random, n_ends: int | None = None) -> list[Params]:
        """Drive it to its end (or for so many ends), results in an order that ``rng`` chooses."""
        while not self.is_over or self._open:
            if n_ends is not None and len(self.records) >= n_ends:
                break
            if not self.is_over and self.ask():
                continue
            assert self._open, "the sampler waits, and nothing is left that could end"
            number = rng.choice(self._open)
            self.end(number, *end(number, self.params[number]))
        return self.params

    def resume(self, before: Search) -> None:
        """Go on where another one was interrupted: with what its ledger would know."""
        ended = {record.number: record for record in before.records}
        self.params, self.records = list(before.params), list(before.records)
        self._open = [number for number in range(len(self.params)) if number not in ended]
        past = [ended.get(n, TrialRecord(n, params)) for n, params in enumerate(self.params)]
        self.notices += self.study.replay(past)

    def disagreements(self) -> list[str]:
        """Notices that a trial would have other parameters than it had."""
        self.notices += self.study.take_notices()
        return [each for each in self.notices if "other parameters" in each]

    def _send(self, request: Any) -> Any:
        reply = self._host.handle(request)
        if isinstance(reply, SamplerFailed):
            pytest.fail(
                f"{reply.hook}() raised {reply.type_name}: {reply.message}\n{reply.traceback}",
                pytrace=False,
            )
        return reply


def bowl(_number: int, params: Params) -> tuple[TrialEnd, float | None]:
    """Every trial completes, with a value that follows from its parameters."""
    return "complete", sum(_size(value) for value in params.values())


def trouble(number: int, _params: Params) -> tuple[TrialEnd, float | None]:
    """Trials that end in all ways there are."""
    ends: Sequence[tuple[TrialEnd, float | None]] = (
        ("complete", float(number)),
        ("failed", None),
        ("pruned", 1.5),
        ("complete", math.nan),
        ("cancelled", None),
        ("pruned", None),
        ("complete", math.inf),
    )
    return ends[number % len(ends)]


class SamplerContract:
    """Subclass it, and override the fixture ``sampler``."""

    n_trials = 20
    """Of each search; fewer for samplers that take long to think."""

    @pytest.fixture
    def sampler(self) -> SamplerSpec:
        """The sampler under test."""
        raise NotImplementedError("override the fixture `sampler`")

    @pytest.fixture
    def space(self) -> dict[str, Distribution]:
        """What is searched."""
        return dict(SPACE)

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_every_proposal_is_a_point_of_the_space(
        self, sampler: SamplerSpec, space: dict[str, Distribution], mode: Mode
    ) -> None:
        axes = make_axes(space)
        found = self._search(sampler, space, mode=mode).run(bowl, random.Random(1))
        assert found
        for params in found:
            assert check_params(axes, params) == params

    def test_there_are_never_more_trials_than_were_asked_for(
        self, sampler: SamplerSpec, space: dict[str, Distribution]
    ) -> None:
        assert len(Search(sampler, space, n_trials=5).run(bowl, random.Random(1))) <= 5

    def test_the_trials_do_not_depend_on_the_order_in_which_results_come(
        self, sampler: SamplerSpec, space: dict[str, Distribution]
    ) -> None:
        first = self._search(sampler, space).run(bowl, random.Random(1))
        assert self._search(sampler, space).run(bowl, random.Random(2)) == first
        assert self._search(sampler, space).run(bowl, random.Random(3)) == first

    @pytest.mark.parametrize("n_ends", [0, 1, 5])
    def test_a_search_that_is_resumed_goes_on_as_if_it_had_never_stopped(
        self, sampler: SamplerSpec, space: dict[str, Distribution], n_ends: int
    ) -> None:
        whole = list(self._search(sampler, space).run(bowl, random.Random(1)))
        before = self._search(sampler, space)
        before.run(bowl, random.Random(4), n_ends)
        after = self._search(sampler, space)
        after.resume(before)
        assert after.run(bowl, random.Random(5)) == whole
        assert after.disagreements() == []

    def test_trials_that_fail_or_have_no_value_are_taken(
        self, sampler: SamplerSpec, space: dict[str, Distribution]
    ) -> None:
        found = self._search(sampler, space).run(trouble, random.Random(1))
        axes = make_axes(space)
        assert [check_params(axes, params) for params in found] == found

    def test_a_trial_has_the_parameters_of_its_branch_and_no_others(
        self, sampler: SamplerSpec
    ) -> None:
        axes = make_axes(BRANCHES)
        search = self._search(sampler, BRANCHES)
        found = search.run(trouble, random.Random(1))
        assert [check_params(axes, params) for params in found] == found
        assert len({params["model"] for params in found}) > 1, "only one branch is ever tried"
        again = self._search(sampler, BRANCHES).run(trouble, random.Random(2))
        assert again == found
        after = self._search(sampler, BRANCHES)
        before = self._search(sampler, BRANCHES)
        before.run(trouble, random.Random(3), 5)
        after.resume(before)
        assert after.run(trouble, random.Random(4)) == found
        assert after.disagreements() == []

    @pytest.mark.parametrize(
        "dist",
        [
            Uniform(-1.0, 1.0),
            Uniform(1e-6, 1.0, log=True),
            Uniform(0.0, 1.0, step=0.25),
            RandInt(0, 1),
            RandInt(1, 1024, log=True),
            Choice((True, False)),
            Choice((None, "a", 2, 0.5)),
            Choice(("only",)),
        ],
        ids=str,
    )
    def test_each_kind_of_parameter_is_proposed_or_refused_in_one_line(
        self, sampler: SamplerSpec, dist: Distribution
    ) -> None:
        space = {"x": dist}
        try:
            search = Search(sampler, space, n_trials=6)
        except SpaceError as error:
            if "\n" in error.message:
                raise
            return
        axes = make_axes(space)
        for params in search.run(bowl, random.Random(1)):
            assert check_params(axes, params) == params

    def _search(
        self, sampler: SamplerSpec, space: dict[str, Distribution], *, mode: Mode = "min"
    ) -> Search:
        return Search(sampler, space, n_trials=self.n_trials, mode=mode)


def _size(value: ParamValue) -> float:
    if isinstance(value, int | float):
        return float(value)
    return float(len(str(value)))


def _no_notebook(name: str) -> object:
    raise AssertionError(f"there is no notebook, and so no variable {name}")
