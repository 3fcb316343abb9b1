"""The study: which trial comes next, when, and what its sampler knows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_ddl.errors import SpaceError, SpecError
from jupyter_ddl.protocol.sampling import SamplerSpec, TrialEnd, TrialRecord
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, RandInt, Uniform
from jupyter_ddl.studies import Exhausted, Proposal, Study, Wait
from jupyter_ddl.verbs.search import Search

Params = dict[str, ParamValue]
MIXED: dict[str, Distribution] = {
    "lr": Uniform(1e-4, 1e-1, log=True),
    "width": Choice((64, 128, 256)),
    "depth": RandInt(1, 8),
    "drop": Uniform(0.0, 0.5, step=0.1),
}
FAST = ("random", "qmc", "de", "cmaes", "tpe")


def make_spec(name: str = "random", n_trials: int = 24, **changes: object) -> Search:
    fields: dict[str, object] = {
        "metric": "loss",
        "mode": "min",
        "n_trials": n_trials,
        "space": MIXED,
        "sampler": SamplerSpec(name),
    }
    fields.update(changes)
    return Search(**fields)  # type: ignore[arg-type]


def outcome(number: int, params: Params) -> tuple[TrialEnd, float | None, int | None]:
    """How trial ``number`` ends, whenever that is: all states occur."""
    value = float(params.get("lr", 0.0) or 0.0) + float(params.get("drop", 0.0) or 0.0)  # type: ignore[arg-type]
    if number % 7 == 3:
        return "failed", None, None
    if number % 11 == 5:
        return "cancelled", None, None
    if number % 5 == 2:
        return "pruned", value + 1, number % 4
    return "complete", value, 9


def drive(study: Study, pick: Callable[[int], int], max_parallel: int) -> list[Params]:
    """Run a study; ``pick`` chooses which of the running trials ends next."""
    running: dict[int, Params] = {}
    listed: list[Params] = []
    while True:
        answer = study.ask() if len(running) < max_parallel else None
        if isinstance(answer, Proposal):
            assert answer.number == len(listed)
            listed.append(answer.params)
            running[answer.number] = answer.params
        elif isinstance(answer, Exhausted) and not running:
            return listed
        else:
            if isinstance(answer, Wait):
                assert set(answer.trials) <= set(running)
            number = sorted(running)[pick(len(running))]
            study.tell(number, *outcome(number, running.pop(number)))


def in_order(n_running: int) -> int:
    return 0


@pytest.mark.parametrize("name", FAST)
@settings(max_examples=8, deadline=None)
@given(shuffle=st.integers(0, 2**32), max_parallel=st.integers(1, 6))
def test_trial_list_does_not_depend_on_the_order_in_which_trials_end(
    name: str, shuffle: int, max_parallel: int
) -> None:
    spec = make_spec(name)
    expected = drive(Study(spec, seed=5, window=6), in_order, max_parallel=6)

    rng = random.Random(shuffle)
    listed = drive(Study(spec, seed=5, window=6), rng.randrange, max_parallel)

    assert len(expected) == 24
    assert listed == expected


def test_gaussian_process_gives_the_same_list_in_any_order_of_arrival() -> None:
    pytest.importorskip("torch")
    spec = make_spec("gp", n_trials=14)

    first = drive(Study(spec, seed=5, window=4), in_order, max_parallel=4)
    second = drive(Study(spec, seed=5, window=4), random.Random(1).randrange, max_parallel=3)

    assert first == second


@pytest.mark.parametrize("name", [*FAST, "optuna.samplers:NSGAIISampler"])
def test_seeds_change_the_list(name: str) -> None:
    one = drive(Study(make_spec(name, 12), seed=1, window=2), in_order, 2)
    other = drive(Study(make_spec(name, 12), seed=2, window=2), in_order, 2)

    assert one != other


@pytest.mark.parametrize("name", [*FAST, "optuna.samplers:NSGAIISampler"])
@pytest.mark.parametrize("cut", [0, 1, 9, 24])
def test_replayed_study_goes_on_as_the_original(name: str, cut: int) -> None:
    expected = drive(Study(make_spec(name), seed=3, window=4), in_order, 4)
    finished = max(0, cut - 3)
    records = [
        TrialRecord(n, expected[n], *outcome(n, expected[n]))
        if n < finished
        else TrialRecord(n, expected[n])
        for n in range(cut)
    ]

    study = Study(make_spec(name), seed=3, window=4)
    notices = study.replay(records)
    for n in range(finished, cut):
        study.tell(n, *outcome(n, expected[n]))
    rest: list[Params] = []
    running: list[tuple[int, Params]] = []
    while not isinstance(answer := study.ask(), Exhausted):
        if isinstance(answer, Proposal):
            rest.append(answer.params)
            running.append((answer.number, answer.params))
        else:
            number, params = running.pop(0)
            study.tell(number, *outcome(number, params))

    assert not [text for text in notices if "other parameters" in text]
    assert rest == expected[cut:]


@pytest.mark.parametrize("name", FAST)
def test_recorded_parameters_win_over_what_a_sampler_proposes_now(name: str) -> None:
    odd: Params = {"lr": 0.05, "width": 64, "depth": 2, "drop": 0.1}
    study = Study(make_spec(name), seed=3, window=1)

    notices = study.replay([TrialRecord(0, odd, "complete", 0.5)])

    assert any("trial 0" in text and "recorded ones are kept" in text for text in notices)
    assert isinstance(study.ask(), Proposal)


def test_trial_waits_for_exactly_those_outside_the_window() -> None:
    study = Study(make_spec("tpe"), seed=0, window=3)
    asked = [study.ask() for _ in range(3)]
    assert all(isinstance(answer, Proposal) for answer in asked)

    study.tell(1, "complete", 1.0)
    study.tell(2, "complete", 1.0)
    answer = study.ask()
    assert answer == Wait((0,))
    assert isinstance(answer, Wait)
    assert answer.text == "waiting for trial 0"

    study.tell(0, "failed")
    assert [type(study.ask()) for _ in range(3)] == [Proposal, Proposal, Proposal]
    assert study.ask() == Wait((3,))


def test_history_free_sampler_never_waits() -> None:
    for name in ("random", "qmc"):
        study = Study(make_spec(name, 50), seed=0, window=1)
        assert all(isinstance(study.ask(), Proposal) for _ in range(50))
        assert isinstance(study.ask(), Exhausted)


def test_quasi_random_points_are_spread_from_the_first_trial_on() -> None:
    space: dict[str, Distribution] = {"x": Uniform(0.0, 8.0), "y": Uniform(0.0, 8.0)}
    for seed in range(3):
        study = Study(make_spec("qmc", 8, space=space), seed=seed, window=1)
        answers = [study.ask() for _ in range(8)]
        points = [answer.params for answer in answers if isinstance(answer, Proposal)]
        for name in space:
            assert sorted(int(float(str(point[name]))) for point in points) == list(range(8))


def test_exhausted_says_why() -> None:
    study = Study(make_spec(n_trials=1), seed=0, window=1)
    study.ask()

    assert study.ask() == Exhausted("all 1 trials have been proposed")


def test_telling_the_same_result_twice_is_harmless_and_another_one_is_refused() -> None:
    study = Study(make_spec(), seed=0, window=1)
    study.ask()
    study.tell(0, "complete", math.nan)
    study.tell(0, "complete", math.nan)

    with pytest.raises(SpecError, match="trial 0 ended complete"):
        study.tell(0, "failed")
    with pytest.raises(SpecError, match="trial 7"):
        study.tell(7, "failed")


@pytest.mark.parametrize(
    ("changes", "window", "message"),
    [
        ({"n_trials": 0}, 1, "0 trials"),
        ({"space": {}}, 1, "no parameters"),
        ({}, 0, "window is 0"),
        ({"sampler": SamplerSpec("de", {"popsize": 9})}, 1, "population, weight, crossover"),
        ({"sampler": SamplerSpec("de", {"population": 3})}, 1, "integer >= 4"),
        ({"sampler": SamplerSpec("de", {"weight": "x"})}, 1, "weight is 'x'"),
        ({"sampler": SamplerSpec("random", {"a": 1})}, 1, "no options"),
        ({"sampler": SamplerSpec("tpe", {"n_startup": 1})}, 1, "did you mean 'n_startup_trials'"),
        ({"sampler": SamplerSpec("qmc", {"qmc_type": "x"})}, 1, "Optuna refused"),
        ({"sampler": SamplerSpec("optuna.samplers:TPSampler")}, 1, "TPESampler"),
        ({"sampler": SamplerSpec("optuna.samplers:GridSampler")}, 1, "search_space"),
        ({"sampler": SamplerSpec("optuna.trial:Trial")}, 1, "not an Optuna sampler"),
        (
            {"sampler": SamplerSpec("tpe"), "space": {"a": Uniform(1, 9, log=True, step=2)}},
            1,
            "no step on a log scale",
        ),
    ],
)
def test_wrong_specs_are_refused_by_name(
    changes: dict[str, object], window: int, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        Study(make_spec(**changes), seed=0, window=window)  # type: ignore[arg-type]


def test_grid_over_a_continuous_range_is_refused() -> None:
    with pytest.raises(SpaceError, match="lr"):
        Study(make_spec("grid"), seed=0, window=1)


def test_optuna_error_names_the_sampler_and_how_far_it_came() -> None:
    space: dict[str, Distribution] = {"a": RandInt(0, 1)}
    spec = make_spec("optuna.samplers:BruteForceSampler", 9, space=space)
    study = Study(spec, seed=0, window=1)

    with pytest.raises(SpecError, match=r"BruteForceSampler: .*after .* results, Optuna raised"):
        drive(study, in_order, 1)


def test_cmaes_says_what_it_cannot_learn() -> None:
    (notice,) = Study(make_spec("cmaes"), seed=0, window=1).take_notices()

    assert notice == "cmaes cannot learn choices: width are drawn at random"


def test_optuna_choices_that_compare_equal_keep_their_types() -> None:
    space: dict[str, Distribution] = {"flag": Choice((1, True, "x", None))}
    listed = drive(Study(make_spec("tpe", 30, space=space), seed=0, window=1), in_order, 1)

    assert {(type(p["flag"]), p["flag"]) for p in listed} == {
        (int, 1),
        (bool, True),
        (str, "x"),
        (type(None), None),
    }
