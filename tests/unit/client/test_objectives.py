"""Functions that were written for other tools, as searches: compiled, and called as on a rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_ddl import dist
from jupyter_ddl.client.objectives import objective_of
from jupyter_ddl.errors import OptionError, SpaceError
from jupyter_ddl.protocol.space import Choice, OneOf, RandInt, Uniform
from jupyter_ddl.ranks import incell
from jupyter_ddl.ranks.metrics import ReportError
from tests.unit.cell.cell_makers import compiled, notebook

LIMIT = 9


class Reports:
    """Stands for an attempt: keeps what is reported."""

    def __init__(self) -> None:
        self.seen: list[tuple[int | None, dict[str, Any]]] = []

    def report(self, step: int | None, metrics: dict[str, Any], reduce: str | None = None) -> None:
        self.seen.append((step, dict(metrics)))


@pytest.fixture
def reports() -> Iterator[Reports]:
    attempt = Reports()
    incell.set_attempt(attempt)  # type: ignore[arg-type]
    yield attempt
    incell.set_attempt(None)


def call(
    function: Any, params: dict[str, Any], space: Any = None, metric: str = "objective"
) -> Any:
    found = objective_of(function, space, metric)
    namespace = {**found.names, "__ddl_params__": params}
    exec(found.source, namespace)
    return namespace[metric]


def by_name(alpha: float, kind: str = "a") -> float:
    return alpha * 2


def by_config(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": config["alpha"], "status": "ok", "depth": config.get("depth", 0)}


def by_trial(trial: Any) -> float:
    kind = trial.suggest_categorical("kind", ["svm", "forest"])
    if kind == "svm":
        c = trial.suggest_float("c", 1e-3, 10, log=True)
        return c * trial.suggest_float("scale", 0, 1, step=0.5)
    n_layers = trial.suggest_int("n_layers", 1, 3)
    width = trial.suggest_categorical("width", [(8,), (8, 8)])
    if n_layers >= 2:
        width = (*width, trial.suggest_int("second", 1, LIMIT))
    trial.report(0.5, step=1)
    return float(sum(width))


def test_a_function_takes_its_parameters_by_name_or_as_one_dict(reports: Reports) -> None:
    assert call(by_name, {"alpha": 2.0}, {"alpha": [1, 2]}) == 4
    assert call(by_config, {"alpha": 2.0}, {"alpha": [1, 2]}, metric="loss") == 2
    assert reports.seen == [(None, {"loss": 2.0, "depth": 0})]
    assert call(lambda x: {"only": x}, {"x": 3}, {"x": [1, 3]}) == 3


def test_a_dict_without_the_metric_is_refused_by_its_names(reports: Reports) -> None:
    with pytest.raises(ReportError, match="without 'objective'; name one of loss, depth with met"):
        call(by_config, {"alpha": 2.0}, {"alpha": [1, 2]})


def test_an_objective_of_a_trial_becomes_a_space_with_branches(reports: Reports) -> None:
    space = objective_of(by_trial, None, "objective").space
    svm, forest = (((OneOf("kind", (kind,)),),) for kind in ("svm", "forest"))
    assert space == {
        "kind": Choice(("svm", "forest")),
        "c": Uniform(1e-3, 10.0, log=True, when=svm),
        "scale": Uniform(0.0, 1.0, step=0.5, when=svm),
        "n_layers": RandInt(1, 3, when=forest),
        "width": Choice(("(8,)", "(8, 8)"), when=forest),
        "second": RandInt(
            1, LIMIT, when=((OneOf("kind", ("forest",)), OneOf("n_layers", (2, 3))),)
        ),
    }
    deep = {"kind": "forest", "n_layers": 2, "width": "(8, 8)", "second": 4}
    assert call(by_trial, deep) == 20
    assert reports.seen == [(1, {"objective": 0.5})]
    assert call(by_trial, {"kind": "svm", "c": 0.5, "scale": 1.0}) == 0.5


def test_such_a_space_compiles_as_the_dict_of_a_search() -> None:
    found = objective_of(by_trial, None, "objective")
    names = {**notebook(), **found.names, "search_space": dict(found.space)}
    draft = compiled("search --metric objective --space search_space", found.source, names)
    assert draft.spec.verb.space == found.space


def in_a_loop(trial: Any) -> float:
    return sum(trial.suggest_float(f"x{n}", 0, 1) for n in range(3))


def of_nothing(trial: Any) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (in_a_loop, "may run not at all or more than once; call it at the top level"),
        (of_nothing, r"of_nothing\(\) asks trial for nothing"),
        (lambda trial: trial.suggest_float("x", 0, 1), "the source of <lambda> is not available"),
    ],
)
def test_what_cannot_be_known_before_is_refused_in_one_line(function: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message) as caught:
        objective_of(function, None, "objective")
    assert "\n" not in caught.value.message


def test_a_function_of_several_arguments_needs_a_space() -> None:
    with pytest.raises(OptionError, match="needs space="):
        objective_of(lambda a, b: a + b, None, "objective")


def test_a_function_that_is_called_as_a_parameter_is_does_not_hide_it() -> None:
    def alpha(config: dict[str, Any]) -> float:
        return float(config["alpha"])

    assert call(alpha, {"alpha": 2.0}, {"alpha": dist.uniform(0, 3)}) == 2
