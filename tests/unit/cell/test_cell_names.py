"""Free names: what a cell takes from the notebook."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.cell.names import (
    IN_CELL_NAMES,
    check_defined,
    check_undebugged,
    names_to_capture,
    read_names,
)
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import CellError
from jupyter_ddl.ranks import incell
from tests.unit.cell.cell_makers import notebook

_BUILTINS = {"print", "range", "len", "open", "super", "ImportError", "NameError", "property"}


def free(code: str) -> set[str]:
    return set(read_names(ast.parse(code)).free) - _BUILTINS


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = y\nprint(x)", {"y"}),
        ("def f(a, b=q):\n    return a + b + w\nf(1)", {"q", "w"}),
        ("def f():\n    return w\nw = 2\nf()", set()),
        ("def f():\n    return w\nf()\nw = 2", {"w"}),
        ("def f():\n    return g()\ndef g():\n    return w\nf()", {"w"}),
        ("def f():\n    w = 1\n    def g():\n        return w\n    return g", set()),
        ("def f():\n    global w\n    w = w + 1\nf()", {"w"}),
        ("class A(B):\n    y = 1\n    def f(self):\n        return y + super().f()", {"B", "y"}),
        ("class A:\n    lr = lr\n", {"lr"}),
        (
            "class A:\n    @property\n    def p(self): ...\n    @p.setter\n    def p(self, v): ...",
            set(),
        ),
        ("[i * k for i in xs for j in i if j]", {"k", "xs"}),
        ("df.query('age > @low and x < 3 + @most_')\ndf.eval(t)", {"df", "low", "most_", "t"}),
        ("exec('y = w + v')\neval(' u ')\neval('(')", {"exec", "eval", "w", "v", "u"}),
        ("f = lambda u, *v, k=d: u + v + k + t", {"d", "t"}),
        ("for i in xs:\n    acc = i\nprint(acc)", {"xs", "acc"}),
        ("if c:\n    m = 1\nprint(m)", {"c", "m"}),
        ("if c:\n    m = 1\nelse:\n    m = 2\nprint(m)", {"c"}),
        ("if c:\n    m = 1\nelse:\n    raise e\nprint(m)", {"c", "e"}),
        ("try:\n    import a as xp\nexcept ImportError:\n    import b as xp\nxp.f()", set()),
        ("try:\n    x = 1\nexcept E:\n    pass\nprint(x)", {"E", "x"}),
        ("with open(p) as f:\n    d = f.read()\nprint(d)", {"p"}),
        ("x += 1", {"x"}),
        ("x = 1\ndel x\nprint(x)", {"x"}),
        ("a.b = 1\nc[i] = 2", {"a", "c", "i"}),
        (
            "match v:\n    case [p, *q]:\n        r = p\n    case {'k': s, **t}:\n        pass\nr",
            {"v", "r"},
        ),
        ("from m import n\nn()", set()),
        ("import p.q\np.q()", set()),
        ("x: T = 1", {"T"}),
        ("def f():\n    x: T = 1\nf()", set()),
        ("f'{v:{w}}'", {"v", "w"}),
    ],
)
def test_free_names_follow_the_order_of_execution(code, expected):
    assert free(code) == expected


def test_replaced_right_hand_sides_are_not_read():
    tree = ast.parse("lr = f(a)\nprint(lr)")
    assert set(read_names(tree, [tree.body[0].value]).free) == {"print"}


_NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@given(parameters=st.sets(_NAMES, min_size=1), bound=st.sets(_NAMES), read=st.sets(_NAMES))
def test_names_that_a_function_binds_are_never_free(parameters, bound, read):
    lines = [f"    {name} = 1" for name in sorted(bound)]
    lines += [f"    print({name})" for name in sorted(read)] + ["    pass"]
    code = f"def f({', '.join(sorted(parameters))}):\n" + "\n".join(lines) + "\nf()"
    assert free(code) == read - parameters - bound


@given(st.lists(st.tuples(_NAMES, _NAMES), min_size=1, max_size=8))
def test_straight_code_raises_name_error_exactly_for_its_free_names(pairs):
    code = "\n".join(f"{target} = {source}" for target, source in pairs)
    expected = free(code)
    exec(code, dict.fromkeys(expected, 0))
    for name in expected:
        with pytest.raises(NameError, match=name):
            exec(code, dict.fromkeys(expected - {name}, 0))


def check(cell: str, **names: object) -> None:
    source = read_source(cell, 3)
    check_defined(source, read_names(source.tree), notebook(**names))


def test_a_misspelt_name_is_refused_with_its_line_and_the_nearest():
    with pytest.raises(CellError, match="did you mean 'X_train'") as caught:
        check("y = 1\nprint(X_trian)", X_train=1)
    assert "In [3], line 3: name 'X_trian' is not defined in the notebook or the cell" in str(
        caught.value
    )
    assert caught.value.line == 3


@pytest.mark.parametrize(
    "cell",
    [
        "report(step=1, a=2)\nlog(device(), rank(), resume())\nlr = loguniform(1, 2)",
        "try:\n    nothing\nexcept NameError:\n    nothing = 1",
        "from math import *\nsin(1)",
        "exec('z = 1')\nprint(z)",
        "for i in range(2):\n    if i:\n        print(late)\n    late = i",
        "print(__name__, __doc__)",
        "from __future__ import annotations\ndef f(x: Missing): ...",
        "input = 3\nprint(input)\nmodel = abs(input)",
        "def f():\n    return input('never called')",
        "if print is None:\n    x = input()",
    ],
)
def test_names_that_may_exist_are_not_refused(cell):
    check(cell)


def test_a_name_in_a_string_may_be_missing_and_too_many_terms_may_not():
    check("data = 1\nprint(eval('nothing'))")
    with pytest.raises(CellError, match="too many terms; split it into several statements"):
        check(f"x = {' + '.join(['1'] * 1_000)}")


def test_a_cell_that_asks_for_input_is_refused_with_the_way_out():
    with pytest.raises(
        CellError, match=r"In \[3\], line 3: input\(\) has nobody to ask on a rank; ask"
    ):
        check("a = 1\nname = int(input('name'))")
    check("name = input('name')", input=lambda prompt: prompt)


@pytest.mark.parametrize(
    "cell",
    [
        "a = 1\nbreakpoint()",
        "a = 1\nimport pdb; pdb.set_trace()",
        "for epoch in range(3):\n    ipdb.set_trace()",
        "with open('x'):\n    breakpoint()",
    ],
)
def test_a_breakpoint_that_the_cell_runs_into_is_refused(cell, monkeypatch):
    source = read_source(cell, 3)
    with pytest.raises(
        CellError, match=r"In \[3\], line 3: .*\(\) has nobody to talk to on a rank"
    ):
        check_undebugged(source)
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    check_undebugged(source)


@pytest.mark.parametrize(
    "cell",
    ["if slow:\n    breakpoint()", "def f():\n    breakpoint()", "x.set_trace()", "breakpoint"],
)
def test_a_breakpoint_that_may_never_be_met_is_not_refused(cell):
    check_undebugged(read_source(cell, 3))


def test_what_a_rank_provides_is_the_list_of_the_in_cell_functions():
    assert set(incell.namespace_defaults()) <= IN_CELL_NAMES


def test_our_own_functions_stay_and_the_users_of_the_same_name_travel():
    names = read_names(ast.parse("report(1)\nlog(2)\ndata"))
    namespace = notebook("from math import log", report=incell.report, data=3)
    assert names_to_capture(names, namespace) == ("data", "log")
