"""The search space: declarations, --space and --grid."""

import pytest

import jupyter_ddl
from jupyter_ddl import dist
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.cell.space import check_grid, read_space
from jupyter_ddl.errors import CellError, SpaceError
from jupyter_ddl.protocol.program import Labels
from jupyter_ddl.protocol.space import Choice, RandInt, Uniform
from tests.unit.cell.cell_makers import notebook


def space_of(cell, namespace=None, **options):
    return read_space(read_source(cell, 3), namespace or notebook(), **options)


def relu(x):
    return max(x, 0)


def test_declarations_become_distributions_and_holes():
    found = space_of(
        "lr = loguniform(1e-4, 1e-1, default=1e-2)\nn = randint(1, 9, step=2); w = choice(8, 16)"
    )
    assert found.space == {
        "lr": Uniform(1e-4, 1e-1, default=1e-2, log=True),
        "n": RandInt(1, 9, step=2),
        "w": Choice((8, 16)),
    }
    assert [
        (placeholder.name, placeholder.line, placeholder.column)
        for placeholder in found.placeholders
    ] == [
        ("lr", 2, 0),
        ("n", 3, 0),
        ("w", 3, 27),
    ]


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("import jupyter_ddl as ddl\nx = ddl.uniform(0, 1)", {}),
        ("from jupyter_ddl import uniform as u\nx = u(0, 1)", {}),
        ("x = ddl.uniform(0, 1)", {"ddl": jupyter_ddl}),
        ("x = u(0, 1)", {"u": dist.uniform}),
        ("from typing import Annotated\nx: Annotated[float, uniform(0, 1)]", {}),
        ("LOW = 0\nx = uniform(LOW, high)", {"high": 1}),
    ],
)
def test_a_declaration_is_found_through_imports_and_aliases(cell, names):
    assert space_of(cell, notebook(**names)).space == {"x": Uniform(0.0, 1.0)}


def test_annotated_takes_the_value_as_default():
    found = space_of("x: Annotated[float, uniform(0, 1)] = 0.25")
    assert found.space["x"] == Uniform(0.0, 1.0, default=0.25)


@pytest.mark.parametrize(
    "cell", ["def choice(*a): ...\nx = choice(1, 2)", "import random\nx = random.uniform(0, 1)"]
)
def test_functions_of_the_users_own_are_not_declarations(cell):
    with pytest.raises(SpaceError, match="no hyper-parameter to search"):
        space_of(cell)


def test_choices_are_read_from_the_notebook():
    namespace = notebook("import numpy as np\nwidths = [8, 16]")
    found = space_of(
        "a = choice(*widths)\nb = choice(widths)\nc = choice(*np.arange(3))", namespace
    )
    assert found.space == {"a": Choice((8, 16)), "b": Choice((8, 16)), "c": Choice((0, 1, 2))}
    assert all(type(value) is int for value in found.space["c"].values)


def test_objects_are_chosen_by_label_in_the_order_of_the_call():
    cell = "import torch\nact = choice(relu, len, torch.nn.GELU(), (1, 2), default=len)"
    found = space_of(cell, notebook(relu=relu))
    labels = ("relu", "len", "torch.nn.GELU()", "(1, 2)")
    assert found.space["act"] == Choice(labels, default="len", by_index=True)
    assert found.placeholders[0].by_index
    assert found.placeholders[0].labels == labels
    assert found.replaced == ()


def test_a_list_written_out_stands_for_its_elements():
    found = space_of(
        "a = choice([relu, *widths])\nb = choice([len, t.x])", notebook(relu=relu, widths=[8])
    )
    assert found.space["a"].values == ("relu", 8)
    assert found.space["b"].values == ("len", "t.x")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("x = uniform(2, 1)", r"In \[3\], line 2: x: low 2.0 is greater than high 1.0"),
        ("x = loguniform(0, 1)", "a log scale needs low > 0"),
        ("x = uniform(0, float('inf'))", "both must be finite"),
        ("x = uniform('a', 1)", "low is 'a'; expected a number"),
        ("x = randint(0.5, 2)", "expects a whole number"),
        ("x = uniform(0, 1, default=2)", "default 2.0 lies outside 0.0 … 1.0"),
        ("x = choice()", "has no values"),
        ("x = choice(1, 2, 1)", "has the value 1 twice"),
        ("x = choice(1, 2, default=3)", "default 3 is not one of the values 1, 2"),
        ("x = uniform(0)", r"uniform\(\) needs 1 positional argument: 'high'"),
        ("x = uniform(0, 1, hgh=3)", "unexpected keyword argument 'hgh'"),
        ("x = y = uniform(0, 1)", "several targets; assign it to one name"),
        ("x = 10 ** uniform(0, 1)", r"uniform\(0, 1\) is not searched here"),
        ("if True:\n    x = uniform(0, 1)", "line 2: .* does not use a choice"),
        ("x = uniform(0, 1)\nx = uniform(0, 2)", r"In \[3\], line 2 and in In \[3\], line 3"),
        ("from jupyter_ddl import choice as c\nx = c(len, print)", "write x = choice"),
    ],
)
def test_contradictory_declarations_are_refused_by_name(cell, message):
    with pytest.raises(SpaceError, match=message) as caught:
        space_of(cell)
    assert "\n" not in str(caught.value)


def test_bounds_that_only_a_rank_knows_are_refused():
    with pytest.raises(CellError, match=r"x: 'f\(\)' is not known before the run"):
        space_of("def f(): return 1\nx = uniform(0, f())")


def test_a_grid_replaces_an_assignment_or_is_put_in():
    found = space_of("lr = 0.5\nprint(lr, wd)", grid=(("lr", (0.1, 0.2)), ("wd", (0,))))
    assert [(placeholder.name, placeholder.line) for placeholder in found.placeholders] == [
        ("lr", 2)
    ]
    assert found.injected == ("wd",)
    assert found.grid_only
    assert check_grid(found.space) == 2


@pytest.mark.parametrize("cell", ["lr, wd = 1, 2", "for lr in (1, 2): pass", "a = lr = 1"])
def test_a_grid_name_that_the_cell_would_overwrite_is_refused(cell):
    with pytest.raises(SpaceError, match="write lr = … on its own"):
        space_of(cell, grid=(("lr", (1, 2)),))


def test_a_name_declared_and_on_the_line_is_refused_with_both_places():
    with pytest.raises(SpaceError, match=r"by --grid lr=… and in In \[3\], line 2"):
        space_of("lr = uniform(0, 1)", grid=(("lr", (1,)),))


def test_a_space_dict_holds_distributions_lists_ranges_and_optunas():
    optuna = pytest.importorskip("optuna")
    space = {
        "lr": dist.loguniform(1e-4, 1e-1),
        "n": range(1, 10, 3),
        "act": [relu, len],
        "opt": optuna.distributions.FloatDistribution(0, 1),
    }
    found = space_of("print(lr, n, act, opt)", notebook(space=space), space_name="space")
    assert found.space == {
        "lr": Uniform(1e-4, 1e-1, log=True),
        "n": RandInt(1, 7, step=3),
        "act": Choice(("relu", "len"), by_index=True),
        "opt": Uniform(0.0, 1.0),
    }
    assert found.labels == {"act": Labels(("act",), ("relu", "len"))}
    assert not found.grid_only


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"lr": 0.01}, r"lr is '0.01'; in a dict write jupyter_ddl.dist.loguniform"),
        ([1], "is a list; expected a dict"),
        ({"a b": [1]}, "key 'a b' is not a Python name"),
    ],
)
def test_a_wrong_space_dict_is_refused(space, message):
    with pytest.raises(CellError, match=message):
        space_of("1", notebook(space=space), space_name="space")


def test_a_missing_space_dict_gets_the_nearest_name():
    with pytest.raises(CellError, match="did you mean 'space'"):
        space_of("1", notebook(space={}), space_name="spaec")


def test_a_grid_of_a_billion_points_shows_its_size():
    found = space_of("\n".join(f"{name} = randint(1, 1000)" for name in "abc"))
    told = r"the grid has 1,000,000,000 points \(1,000 a × 1,000 b × 1,000 c\)"
    with pytest.raises(SpaceError, match=told):
        check_grid(found.space)
