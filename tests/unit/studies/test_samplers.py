"""Our own samplers: grid, random, differential evolution."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.protocol.sampling import Mode, SamplerSpec, TrialRecord
from jupyter_ddl.protocol.space import Choice, Distribution, RandInt, Uniform, grid_values
from jupyter_ddl.studies import Exhausted, Proposal, Study, Wait
from jupyter_ddl.studies.axes import check_params, counter_draws, make_axes
from jupyter_ddl.verbs.search import Search

Objective = Callable[[list[float]], float]
CUBE: dict[str, Distribution] = {name: Uniform(-5.0, 5.0) for name in "xyz"}


def make_study(
    name: str,
    n_trials: int,
    space: dict[str, Distribution],
    seed: int = 0,
    mode: Mode = "min",
    **options: float,
) -> Study:
    spec = Search("loss", mode, n_trials, space, SamplerSpec(name, dict(options)))
    return Study(spec, seed=seed, window=4)


def ask(study: Study) -> Proposal:
    answer = study.ask()
    assert isinstance(answer, Proposal), answer
    return answer


def test_grid_changes_the_last_parameter_fastest() -> None:
    space: dict[str, Distribution] = {
        "a": Choice(("u", "v")),
        "b": RandInt(1, 5, step=2),
        "c": Uniform(0.0, 0.5, step=0.25),
    }
    study = make_study("grid", 1000, space)

    listed = [tuple(ask(study).params.values()) for _ in range(study.n_trials)]

    assert study.n_trials == 18
    assert listed == list(itertools.product(*(grid_values(n, d) for n, d in space.items())))
    assert study.ask() == Exhausted("all 18 points of the grid have been proposed")


def test_grid_stops_at_the_number_of_trials() -> None:
    study = make_study("grid", 2, {"a": RandInt(0, 9)})

    assert [ask(study).params for _ in range(2)] == [{"a": 0}, {"a": 1}]
    assert study.ask() == Exhausted("all 2 trials have been proposed")


def test_huge_grid_is_never_listed() -> None:
    space: dict[str, Distribution] = {name: RandInt(0, 10**9) for name in "abc"}
    study = make_study("grid", 10**12, space)

    assert study.n_trials == 10**12
    assert ask(study).params == {"a": 0, "b": 0, "c": 0}
    assert ask(study).params == {"a": 0, "b": 0, "c": 1}


def test_random_draws_are_the_same_in_another_process() -> None:
    code = "from jupyter_ddl.studies.axes import counter_draws; print(counter_draws(12, 345, 11))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.strip() == repr(counter_draws(12, 345, 11))


def test_random_trial_is_the_same_whatever_was_asked_before() -> None:
    space: dict[str, Distribution] = {"a": Uniform(0, 1), "b": RandInt(0, 10**6)}
    whole = make_study("random", 20, space)
    listed = [ask(whole).params for _ in range(20)]

    resumed = make_study("random", 20, space)
    assert resumed.replay([TrialRecord(n, listed[n]) for n in range(19)]) == ()
    assert ask(resumed).params == listed[19]


def test_random_draws_are_even_and_do_not_repeat() -> None:
    draws = [draw for number in range(4000) for draw in counter_draws(1, number, 3)]

    counts = Counter(int(draw * 10) for draw in draws)
    assert len(set(draws)) == 12_000
    # 1,200 expected per tenth, standard deviation 33: six of them either way.
    assert all(1000 < counts[tenth] < 1400 for tenth in range(10))


@st.composite
def distributions(draw: st.DrawFn) -> Distribution:
    kind = draw(st.sampled_from(["float", "int", "choice"]))
    if kind == "choice":
        return Choice(tuple(draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5))))
    log = draw(st.booleans())
    if kind == "int":
        low = draw(st.integers(1 if log else -100, 100))
        high = draw(st.integers(low, low + 200))
        return RandInt(low, high, log=log, step=draw(st.integers(1, 7)))
    low_f = draw(st.floats(1e-6 if log else -1e300, 1e3))
    high_f = draw(st.floats(low_f, 1e300 if not log else low_f * 1e6))
    step = draw(st.one_of(st.none(), st.just((high_f - low_f) / 7 or 1.0)))
    return Uniform(low_f, high_f, log=log, step=step if math.isfinite(step or 0.0) else None)


@given(dist=distributions(), unit=st.floats(0.0, 1.0))
def test_every_value_drawn_is_one_that_the_parameter_accepts(
    dist: Distribution, unit: float
) -> None:
    (axis,) = make_axes({"x": dist})
    value = axis.from_unit(unit)

    assert check_params([axis], {"x": value}) == {"x": value}
    if axis.n_values is not None and not isinstance(dist, Choice):
        assert axis.from_unit(axis.to_unit(value)) == value


def test_ends_of_an_integer_range_are_as_likely_as_its_middle() -> None:
    (axis,) = make_axes({"x": RandInt(1, 4)})

    counts = Counter(axis.from_unit((k + 0.5) / 400) for k in range(400))
    assert counts == {1: 100, 2: 100, 3: 100, 4: 100}


def sphere(point: list[float]) -> float:
    return sum((x - 1.0) ** 2 for x in point)


def rastrigin(point: list[float]) -> float:
    return sum(10 + x * x - 10 * math.cos(2 * math.pi * x) for x in point)


def best_found(name: str, n_trials: int, objective: Objective, seed: int, mode: Mode) -> float:
    sign = 1.0 if mode == "min" else -1.0
    study = make_study(name, n_trials, CUBE, seed=seed, mode=mode)
    values = []
    while not isinstance(answer := study.ask(), Exhausted):
        assert isinstance(answer, Proposal)
        values.append(objective([float(str(x)) for x in answer.params.values()]))
        study.tell(answer.number, "complete", sign * values[-1])
    return min(values)


@pytest.mark.parametrize(
    ("objective", "n_trials", "mode"),
    [(sphere, 600, "min"), (sphere, 600, "max"), (rastrigin, 2000, "min")],
)
def test_evolution_beats_random_with_the_same_budget(
    objective: Objective, n_trials: int, mode: Mode
) -> None:
    # Medians of seven seeds: now and then rastrigin catches a whole population.
    evolved = [best_found("de", n_trials, objective, seed, mode) for seed in range(7)]
    drawn = [best_found("random", n_trials, objective, seed, mode) for seed in range(7)]

    assert median(evolved) < median(drawn) / 100


def test_evolution_solves_a_space_of_integers_and_choices() -> None:
    space: dict[str, Distribution] = {
        "n": RandInt(1, 1000, log=True),
        "kind": Choice(("a", "b", "c")),
        "k": RandInt(0, 100, step=5),
    }
    study = make_study("de", 400, space, seed=4)
    best = math.inf
    while not isinstance(answer := study.ask(), Exhausted):
        assert isinstance(answer, Proposal)
        n, kind, k = answer.params.values()
        assert isinstance(n, int)
        assert isinstance(k, int)
        loss = abs(math.log(n / 30)) + abs(k - 35) / 50 + (kind != "b")
        best = min(best, loss)
        study.tell(answer.number, "complete", loss)

    assert best < 0.1


def test_evolution_waits_for_its_generation_and_names_the_straggler() -> None:
    study = make_study("de", 30, CUBE, population=5)
    for _ in range(5):
        ask(study)
    for number in (0, 1, 2, 4):
        study.tell(number, "complete", 1.0)

    answer = study.ask()
    assert isinstance(answer, Wait)
    assert answer.trials == (3,)
    assert answer.text == "waiting for trial 3"
    study.tell(3, "failed")
    assert [ask(study).number for _ in range(5)] == [5, 6, 7, 8, 9]


def test_evolution_resumes_in_the_middle_of_a_generation_with_failures() -> None:
    def end(number: int, study: Study, params: dict[str, object]) -> None:
        if number % 3 == 1:
            study.tell(number, "failed")
        else:
            study.tell(number, "complete", sum(float(str(x)) ** 2 for x in params.values()))

    whole = make_study("de", 33, CUBE, seed=8, population=6)
    listed = []
    while not isinstance(answer := whole.ask(), Exhausted):
        assert isinstance(answer, Proposal)
        listed.append(answer.params)
        end(answer.number, whole, dict(answer.params))

    resumed = make_study("de", 33, CUBE, seed=8, population=6)
    assert resumed.replay([TrialRecord(n, listed[n]) for n in range(6)]) == ()
    for number in range(6):
        end(number, resumed, dict(listed[number]))
    rest = []
    while not isinstance(answer := resumed.ask(), Exhausted):
        assert isinstance(answer, Proposal)
        rest.append(answer.params)
        end(answer.number, resumed, dict(answer.params))

    assert rest == listed[6:]


def test_evolution_prefers_a_complete_parent_to_a_better_pruned_child() -> None:
    space: dict[str, Distribution] = {"x": Uniform(0.0, 1.0)}
    same = [make_study("de", 12, space, seed=1, population=4) for _ in range(2)]
    for study, child_ends in zip(same, ("pruned", "failed"), strict=True):
        for number in range(8):
            ask(study)
            if number < 4:
                study.tell(number, "complete", 1.0)
            elif child_ends == "pruned":
                study.tell(number, "pruned", 0.0, step=1)
            else:
                study.tell(number, "failed")

    assert [ask(same[0]).params for _ in range(4)] == [ask(same[1]).params for _ in range(4)]


def test_evolution_of_fewer_trials_than_parents_is_a_random_search() -> None:
    study = make_study("de", 2, CUBE)

    assert [ask(study).number for _ in range(2)] == [0, 1]
    assert isinstance(study.ask(), Exhausted)
