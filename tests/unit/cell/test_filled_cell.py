"""A trial as a plain cell: executed, it does what the trial has done."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from jupyter_ddl.client.objectives import objective_of
from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.grid import Grid
from jupyter_ddl.protocol.program import Placeholder, Program
from jupyter_ddl.protocol.space import active_params
from jupyter_ddl.verbs.base import find_verb
from tests.unit.cell.cell_makers import compiled, notebook

SEARCH = "search --metric acc"


def filled(
    line: str, cell: str, params: dict[str, Any], namespace: dict[str, Any] | None = None
) -> str:
    spec = compiled(line, cell, namespace).spec
    return spec.verb.trial_cell(spec.program, params, "trial 7 of r")


def executed(text: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """The names that a notebook has after the cell."""
    names = notebook() if namespace is None else namespace
    exec(compile(text, "In [4]", "exec"), names)
    return names


def test_the_values_stand_where_the_distributions_stood() -> None:
    cell = 'lr = loguniform(1e-4, 1e-1)  # a step\nact = choice("relu", "é")\nacc = lr\n'
    text = filled(SEARCH, cell, {"lr": 0.1 + 0.2, "act": "é"})
    assert text == ("# trial 7 of r\nlr = 0.30000000000000004  # a step\nact = 'é'\nacc = lr\n")


def test_what_a_rank_knows_by_itself_is_imported(capsys: pytest.CaptureFixture[str]) -> None:
    names = executed(filled(SEARCH, "lr = uniform(0, 1)\nreport(step=0, acc=lr)\n", {"lr": 0.5}))
    assert names["lr"] == 0.5
    assert "acc=0.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    "declared",
    [
        "x = choice(1.5, 2.5)",
        "é = 'ü'; x = choice(\n    1.5,\n    2.5,\n)",
        "x = (\n    uniform(1, 3)\n)",
        "from typing import Annotated\nx: Annotated[float, uniform(1, 3)]",
        "from typing import Annotated\nx: Annotated[float, uniform(1, 3)] = 2",
        "import jupyter_ddl as jd\nx = jd.uniform(1, 3)",
        "if True:\n    pass\nx = uniform(1, 3)",
    ],
)
def test_however_a_parameter_is_declared(declared: str) -> None:
    names = executed(filled(SEARCH, f"{declared}\nacc = x + 1\nreport(acc=acc)\n", {"x": 2.5}))
    assert names["acc"] == 3.5


@pytest.mark.parametrize(
    "call", ["choice(first, second)", "choice([first, second])", "choice((first, second))"]
)
def test_a_choice_between_objects_is_one_of_them(call: str) -> None:
    namespace = notebook("def first(): return 1\ndef second(): return 2")
    cell = f"f = {call}\nacc = f()\n"
    spec = compiled(SEARCH, cell, namespace).spec
    for label, wanted in zip(spec.verb.space["f"].values, (1, 2), strict=True):
        text = spec.verb.trial_cell(spec.program, {"f": label}, "")
        assert executed(text, dict(namespace))["acc"] == wanted


def test_branches_that_a_trial_has_not_taken_stay_as_they_are() -> None:
    cell = (
        'model = choice("svm", "knn")\n'
        'if model == "svm":\n    C = uniform(0, 1)\n    acc = C\n'
        "else:\n    C = randint(10, 12)\n    k = choice(3, 5)\n    acc = C * k\n"
    )
    spec = compiled(SEARCH, cell).spec
    whens = [(name, dist.when) for name, dist in spec.verb.space.items()]
    for model, wanted in (("svm", 0.25), ("knn", 33)):
        given = {name: {"C[svm]": 0.25, "C[knn]": 11, "k": 3}.get(name, model) for name, _ in whens}
        text = spec.verb.trial_cell(spec.program, active_params(whens, given), "")
        assert executed(text)["acc"] == wanted


def test_values_from_outside_of_the_cell_stand_above_it() -> None:
    namespace = notebook("SPACE = {'f': [min, max], 'a': dist.uniform(0, 1)}", dist=_dist())
    cell = "from __future__ import annotations\nb = 3\nacc = f(a, b)\n"
    spec = compiled(f"{SEARCH} --space SPACE --grid b=5,7", cell, namespace).spec
    label = spec.verb.space["f"].values[0]
    text = spec.verb.trial_cell(spec.program, {"b": 7, "f": label, "a": 0.5}, "")
    names = executed(text, dict(namespace))
    assert (names["acc"], names["b"]) == (0.5, 7)


def test_a_function_is_called_with_its_values() -> None:
    def objective(lr: float, width: int) -> float:
        return lr * width

    found = objective_of(objective, {"lr": _dist().uniform(0, 1), "width": [1, 2]}, "acc")
    program = Program("\n" + found.source, "In [1]")
    text = find_verb("search")().trial_cell(program, {"lr": 0.5, "width": 2}, "")
    assert executed(text, {**found.names})["acc"] == 1.0


def test_all_points_of_a_grid_run_as_plain_cells() -> None:
    cell = (
        'a = choice(True, None, "x\\n\'", 1e-300)\n'
        "match a:\n"
        "    case True:\n        b = randint(1, 2)\n"
        "    case _:\n        b = choice(-0.0, float('1e308'))\n"
        "acc = 1\n"
    )
    spec = compiled(f"{SEARCH} --sampler grid", cell).spec
    grid = Grid(spec.verb.space)
    points = [grid.point(n) for n in range(spec.verb.n_trials)]
    assert len(points) == 8
    for point in points:
        names = executed(spec.verb.trial_cell(spec.program, point, ""))
        for name, value in point.items():
            assert repr(names[name.partition("[")[0]]) == repr(value)


def test_it_runs_in_a_python_that_has_loaded_nothing() -> None:
    text = filled(SEARCH, "lr = uniform(0, 1)\nreport(acc=lr)\ncheckpoint(lr=lr)\n", {"lr": 0.5})
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "acc=0.5" in done.stdout


def test_a_record_without_such_a_cell_is_refused_in_one_line() -> None:
    search = find_verb("search")()
    with pytest.raises(SpecError, match="assigns no 'lr' at line 9"):
        search.trial_cell(
            Program("x = 1", "In [1]", placeholders=(Placeholder("lr", 9, 0),)), {}, ""
        )
    with pytest.raises(SpecError, match="no Python"):
        search.trial_cell(Program("x = (", "In [1]"), {}, "")
    with pytest.raises(SpecError, match="no cell with values of its own"):
        find_verb("ddp")(n_ranks=2).trial_cell(Program("x = 1", "In [1]"), {}, "")


def _dist() -> Any:
    from jupyter_ddl import dist

    return dist
