"""Parameters that only some trials have: declared below tests of a choice, or in nested dicts."""

import contextlib
import itertools
import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jupyter_ddl.cell.dry_run import describe
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.cell.space import check_grid, read_space
from jupyter_ddl.errors import CellError, SpaceError
from jupyter_ddl.protocol.grid import Grid
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.space import Choice, OneOf, Uniform, variable_of
from jupyter_ddl.ranks.compiling import PARAM, PICK, compile_program
from tests.unit.cell.cell_makers import compiled, notebook

MODEL = 'model = choice("svm", "forest", "mean")\n'


def read(cell, namespace=None, **options):
    return read_space(read_source(cell, 3), namespace or notebook(), **options)


def conditions(cell, namespace=None, **options):
    return {
        name: dist.when
        for name, dist in read(cell, namespace, **options).space.items()
        if dist.when
    }


def only(name, *values):
    return ((OneOf(name, values),),)


# -- what Python does, and what the space says -----------------------------------------------------


class Guided:
    """``choice`` for plain execution, which takes every way through a program once."""

    def __init__(self, way):
        self.way = list(way)
        self.widths = []

    def __call__(self, *values):
        at = len(self.widths)
        self.widths.append(len(values))
        return values[self.way[at] if at < len(self.way) else 0]


def executed(source, names):
    """The variables of every trial that Python can come to, by trying all of them."""
    way, found, code = [], [], compile(source, "program", "exec")
    while True:
        guide = Guided(way)
        namespace = {"choice": guide}
        exec(code, namespace)
        found.append({name: namespace[name] for name in names if name in namespace})
        way = way[: len(guide.widths)] + [0] * (len(guide.widths) - len(way))
        while way and way[-1] == guide.widths[len(way) - 1] - 1:
            way.pop()
        if not way:
            return found
        way[-1] += 1


VALUES = {"a": (1, 2, 3), "b": (1, 2), "c": (0, 1, 2, 3), "d": (True, False), "e": ("x", "y")}
VALUES |= dict.fromkeys("fghij", (1, 2))


class Programs:
    """Random programs of choices, ``if`` and ``match``; tests are such as Python can evaluate."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def make(self):
        lines, _ = self._block({"a"}, 2)
        return "a = choice(1, 2, 3)\n" + "\n".join(lines) + "\n"

    def _test(self, visible):
        name = self._pick(sorted(visible))
        value, more = self._pick(VALUES[name]), self._pick(VALUES[name])
        match self._pick(["compare"] * 3 + ["in", "truth", "not", "and", "or"]):
            case "truth":
                return name
            case "in":
                return f"{name} {self._pick(['in', 'not in'])} ({value!r}, {more!r})"
            case "not":
                return f"not ({self._test(visible)})"
            case "and" | "or" as word:
                return f"({self._test(visible)}) {word} ({self._test(visible)})"
        operators = ["==", "!="] if isinstance(value, str) else ["==", "!=", "<", ">="]
        return f"{name} {self._pick(operators)} {value!r}"

    def _block(self, visible, depth):
        """Lines of a block, and the variables that exist behind it."""
        lines, visible = [], set(visible)
        for _ in range(self._random.randint(1, 3)):
            kind = self._pick(["declare", "if", "if", "match"])
            if kind == "declare" or depth == 0:
                name = self._pick(sorted(VALUES.keys() - visible) or sorted(VALUES))
                values = VALUES[name][: self._random.randint(1, len(VALUES[name]))]
                lines.append(f"{name} = choice({', '.join(map(repr, values))})")
                visible.add(name)
                continue
            heads, indent = self._heads(kind, visible, lines)
            behind = [] if heads[-1].strip() in ("else:", "case _:") else [visible]
            for head in heads:
                inner, after = self._block(visible, depth - 1)
                lines += [head, *(indent + line for line in inner)]
                behind.append(after)
            visible = set.intersection(*behind)
        return lines, visible

    def _heads(self, kind, visible, lines):
        if kind == "if":
            tests = [self._test(visible) for _ in range(self._random.randint(1, 3))]
            heads = [f"{'el' * bool(at)}if {test}:" for at, test in enumerate(tests)]
            return heads + ["else:"] * self._random.randint(0, 1), "    "
        name = self._pick(sorted(visible))
        lines.append(f"match {name}:")
        values = self._random.sample(VALUES[name], self._random.randint(1, 2))
        heads = [f"    case {' | '.join(map(repr, values))}:", "    case _:"]
        return heads[: self._random.randint(1, 2)], "        "

    def _pick(self, values):
        return self._random.choice(values)


def as_key(params):
    return tuple(sorted((name, repr(value)) for name, value in params.items()))


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(seed=st.integers(0, 2**32))
def test_the_space_of_a_program_is_what_python_comes_to(seed):
    program = Programs(seed).make()
    found = None
    # Refused: one name twice, or a branch that no value leads to.
    with contextlib.suppress(SpaceError):
        found = read(program)
    assume(found is not None)
    grid = Grid(found.space)
    assume(grid.n_points <= 300)
    points = [grid.point(number) for number in range(grid.n_points)]
    assert len({as_key(point) for point in points}) == len(points)
    named = [{variable_of(name): value for name, value in point.items()} for point in points]
    expected = executed(program, VALUES)
    assert sorted(map(as_key, named)) == sorted(map(as_key, expected))

    code, _ = compile_program(
        Program(source="\n" + program, filename="In [3]", placeholders=found.placeholders)
    )
    for point, variables in zip(points[:20], named, strict=False):
        namespace = {PARAM: point.__getitem__}
        exec(code.body, namespace)
        assert {name: namespace[name] for name in VALUES if name in namespace} == variables


# -- examples --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "when"),
    [
        ("model == 'svm'", only("model", "svm")),
        ("'svm' == model", only("model", "svm")),
        ("model != 'svm'", only("model", "forest", "mean")),
        ("model in ('svm', 'mean')", only("model", "svm", "mean")),
        ("model in LINEAR", only("model", "svm")),
        ("not model == 'svm'", only("model", "forest", "mean")),
        ("model.startswith('s')", only("model", "svm")),
        ("model == 'svm' or model == 'mean'", only("model", "svm", "mean")),
        ("model != 'svm' and model != 'mean'", only("model", "forest")),
        ("deep", only("deep", True)),
        ("not deep", only("deep", False)),
        ("deep is True", only("deep", True)),
        ("layers >= 2", only("layers", 2, 3)),
        ("model == 'svm' and deep", ((OneOf("model", ("svm",)), OneOf("deep", (True,))),)),
        ("model == 'svm' or deep", (*only("model", "svm"), *only("deep", True))),
        ("norm is None", only("norm", None)),
        ("act is relu", only("act", "relu")),
    ],
)
def test_whatever_can_be_asked_of_a_choice_makes_a_branch(test, when):
    cell = (
        MODEL
        + "deep = choice(True, False)\nlayers = randint(1, 3)\nnorm = choice(None, 'l2')\n"
        + f"act = choice(relu, len)\nif {test}:\n    x = uniform(0, 1)\n"
    )
    namespace = notebook("LINEAR = ['svm', 'ridge']\ndef relu(x): return x")
    assert conditions(cell, namespace) == {"x": when}


def test_a_nested_branch_has_the_conditions_of_its_parents():
    cell = MODEL + (
        "if model == 'svm':\n"
        "    kernel = choice('rbf', 'linear')\n"
        "    if kernel == 'rbf':\n        gamma = loguniform(1e-4, 1)\n"
        "elif model == 'forest':\n    depth = randint(2, 9)\n"
        "else:\n    shrink = uniform(0, 1)\n"
    )
    svm = OneOf("model", ("svm",))
    assert conditions(cell) == {
        "kernel": ((svm,),),
        "gamma": ((svm, OneOf("kernel", ("rbf",))),),
        "depth": only("model", "forest"),
        "shrink": only("model", "mean"),
    }
    shown = describe(compiled("search --metric acc", cell + "acc = 1.0\n")).splitlines()
    at = shown.index("Hyper-parameters:")
    assert shown[at + 1 : at + 10] == [
        "  model: one of 'svm', 'forest', 'mean'",
        "    if model = svm:",
        "      kernel: one of 'rbf', 'linear'",
        "        if kernel = rbf:",
        "          gamma: 0.0001 … 1.0, log",
        "    if model = forest:",
        "      depth: whole, 2 … 9",
        "    if model = mean:",
        "      shrink: 0.0 … 1.0",
    ]


def test_match_makes_branches_with_guards_and_alternatives():
    cell = MODEL + (
        "deep = choice(True, False)\n"
        "match model:\n"
        "    case 'svm' | 'forest' if deep:\n        x = uniform(0, 1)\n"
        "    case 'svm':\n        y = uniform(0, 1)\n"
        "    case other:\n        z = uniform(0, 1)\n"
    )
    deep, shallow = OneOf("deep", (True,)), OneOf("deep", (False,))
    assert conditions(cell) == {
        "x": ((OneOf("model", ("svm", "forest")), deep),),
        "y": ((OneOf("model", ("svm",)), shallow),),
        "z": (*only("model", "mean"), (OneOf("model", ("forest", "mean")), shallow)),
    }


def test_one_name_in_two_branches_is_two_parameters_or_one_if_they_are_equal():
    cell = (
        MODEL + "if model == 'svm': C = uniform(0, 1)\nelif model == 'forest': C = uniform(0, 2)\n"
    )
    assert conditions(cell) == {
        "C[svm]": only("model", "svm"),
        "C[forest]": only("model", "forest"),
    }
    assert [hole.name for hole in read(cell).placeholders] == ["model", "C[svm]", "C[forest]"]
    equal = cell.replace("(0, 2)", "(0, 1)")
    assert conditions(equal) == {"C": only("model", "svm", "forest")}
    assert [hole.name for hole in read(equal).placeholders] == ["model", "C", "C"]
    everywhere = MODEL + "if model == 'svm': C = uniform(0, 1)\nelse: C = uniform(0, 1)\n"
    assert conditions(everywhere) == {}


def test_a_variable_that_is_another_parameter_in_each_branch_can_be_tested():
    cell = MODEL + (
        "if model == 'svm': kernel = choice('rbf', 'linear')\n"
        "else: kernel = choice('box', 'rbf')\n"
        "if kernel == 'rbf': width = uniform(0, 1)\n"
    )
    svm, others = OneOf("model", ("svm",)), OneOf("model", ("forest", "mean"))
    assert conditions(cell)["width"] == (
        (svm, OneOf("kernel[svm]", ("rbf",))),
        (others, OneOf("kernel[forest|mean]", ("rbf",))),
    )


def test_a_grid_has_the_active_combinations_once():
    cell = MODEL + (
        "if model == 'svm':\n    C = choice(1, 2, 3)\n"
        "elif model == 'forest':\n    depth = choice(4, 5)\n    C = choice(7, 8)\n"
        "seed = choice(0, 1)\n"
    )
    space = read(cell).space
    assert check_grid(space) == (3 + 2 * 2 + 1) * 2
    draft = compiled("search --metric acc --sampler grid", cell + "acc = 1.0\n")
    assert draft.spec.verb.n_trials == 16
    assert "Grid points: 16" in describe(draft)
    points = [Grid(space).point(number) for number in range(16)]
    assert [list(point.values()) for point in points[:4]] == [
        ["svm", 1, 0],
        ["svm", 1, 1],
        ["svm", 2, 0],
        ["svm", 2, 1],
    ]
    assert points[6] == {"model": "forest", "depth": 4, "C[forest]": 7, "seed": 0}
    assert points[-1] == {"model": "mean", "seed": 1}


def test_a_choice_from_the_line_or_the_dict_can_be_tested_in_the_cell():
    cell = "if model == 'svm':\n    C = uniform(0, 1)\n"
    grid = [("model", ("svm", "forest"))]
    assert conditions(cell, grid=grid) == {"C": only("model", "svm")}
    assert conditions("model = 'svm'\n" + cell, grid=grid) == {"C": only("model", "svm")}
    namespace = notebook(space={"model": ["svm", "forest"]})
    assert conditions(cell, namespace, space_name="space") == {"C": only("model", "svm")}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("for i in range(2):\n    x = uniform(0, 1)", r"line 5: uniform\(0, 1\) is not searched"),
        ("def f():\n    x = uniform(0, 1)", r"line 5: uniform\(0, 1\) is not searched here"),
        ("if model == 'svm':\n  for i in (1,):\n    x = uniform(0, 1)", "line 6: .* not searched"),
        ("if fast:\n    x = uniform(0, 1)", "'fast' is not searched here: the test does not use a"),
        ("if lr > 1:\n    x = uniform(0, 1)", "about 'lr', which is a range, not a choice"),
        ("if model == kind:\n    x = uniform(0, 1)", "compares kind and model with each other"),
        ("if model == 'smv':\n    x = uniform(0, 1)", "no trial ever .* model is one of 'svm',"),
        ("if model == today():\n    x = uniform(0, 1)", "not known before .*today has no value"),
        ("if model < 1:\n    x = uniform(0, 1)", "not known before the run for model = svm"),
        (
            "model = model.upper()\nif model == 'SVM':\n    x = uniform(0, 1)",
            "about 'model', which is also assigned elsewhere",
        ),
        (
            "if kind == 1: k = choice(1, 2)\nelse: k = 0\nif k == 1:\n    x = uniform(0, 1)",
            "about 'k', which is also assigned elsewhere",
        ),
        (
            "if model == 'svm':\n    x = uniform(0, 1)\nif kind == 1:\n    x = uniform(0, 2)",
            r"'x' is declared twice: in In \[3\], line 5 and in In \[3\], line 7",
        ),
        (
            "match model:\n    case [a, b]:\n        x = uniform(0, 1)",
            "pattern is not a plain value",
        ),
        (
            "act = choice(make(), len)\nif act == len:\n    x = uniform(0, 1)",
            "made on a rank only",
        ),
        ("x = uniform(0, 1) if model == 'svm' else 0", "is not searched here; assign it"),
    ],
)
def test_declarations_below_anything_else_are_refused_in_one_line(cell, message):
    start = MODEL + "kind = choice(1, 2); lr = uniform(0, 9)\n"
    with pytest.raises(SpaceError, match=message) as caught:
        read(start + cell, notebook("fast = True"))
    assert "\n" not in str(caught.value)


def test_branches_without_declarations_may_test_anything():
    cell = (
        MODEL + "import os\nif os.cpu_count() > 1:\n    model = model.upper()\nx = uniform(0, 1)\n"
    )
    assert conditions(cell) == {}


def test_a_tested_name_may_be_used_again_below_its_test():
    cell = MODEL + (
        "if model == 'svm':\n    C = uniform(0, 1)\n    model = C\n"
        "elif model == 'forest':\n    depth = randint(1, 2)\n    model = depth\n"
    )
    assert set(conditions(cell)) == {"C", "depth"}


# -- dicts -----------------------------------------------------------------------------------------


def test_a_dict_in_a_dict_is_a_choice_with_branches():
    code = (
        "from jupyter_ddl import dist\n"
        "space = {'model': {'svm': {'C': dist.uniform(0, 1), 'act': [len, print],\n"
        "                           'kernel': {'rbf': {'gamma': [1, 2]}, 'linear': {}}},\n"
        "                   'forest': {'C': dist.uniform(0, 2)}}}\n"
    )
    found = read("print(model)", notebook(code), space_name="space")
    svm = OneOf("model", ("svm",))
    assert found.space["model"] == Choice(("svm", "forest"))
    assert found.space["C[forest]"] == Uniform(0.0, 2.0, when=only("model", "forest"))
    assert found.space["gamma"].when == ((svm, OneOf("kernel", ("rbf",))),)
    assert found.injected == ("model", "C", "act", "kernel", "gamma")
    assert found.labels["act"].path == ("model", "svm", "act")


@pytest.mark.parametrize(
    ("space", "error", "message"),
    [
        ({"m": {"a": {"x": [1]}, "b": 3}}, CellError, "'b' has 3, expected a dict of what that"),
        ({"m": {"a": {"x y": [1]}}}, CellError, "m = a: key 'x y' is not a Python name"),
        ({"m": {}}, SpaceError, r"m: choice\(\) has no values"),
        ({"x": [1, 2], "m": {"a": {"x": [1]}}}, SpaceError, "'x' is declared twice"),
    ],
)
def test_a_dict_that_is_no_space_is_refused_in_one_line(space, error, message):
    with pytest.raises(error, match=message) as caught:
        read("print(1)", notebook(space=space), space_name="space")
    assert "\n" not in str(caught.value)


def test_a_cell_does_not_assign_what_only_some_trials_have():
    space = {"m": {"a": {"x": [1, 2]}, "b": {}}}
    with pytest.raises(SpaceError, match="'x = 1' assigns a hyper-parameter that only some"):
        read("x = 1", notebook(space=space), space_name="space")


def test_the_label_of_an_object_is_picked_in_its_branch():
    cell = MODEL + (
        "if model == 'svm':\n    act = choice(len, print)\nelse:\n    act = choice(min, max)\n"
    )
    found = read(cell)
    code, _ = compile_program(
        Program(source="\n" + cell, filename="In [3]", placeholders=found.placeholders)
    )
    picked = []
    for model, name in itertools.product(("svm", "forest"), ("first", "second")):
        namespace = {
            PARAM: lambda _, model=model: model,
            PICK: lambda key, values, name=name: (key, values[name == "second"]),
        }
        exec(code.body, namespace)
        picked.append(namespace["act"])
    assert picked == [
        ("act[svm]", len),
        ("act[svm]", print),
        ("act[forest|mean]", min),
        ("act[forest|mean]", max),
    ]


def test_parameters_of_one_name_are_told_apart_by_all_that_leads_to_them():
    cell = MODEL + (
        "deep = choice(True, False)\n"
        "if model == 'svm' and deep: x = uniform(0, 1)\n"
        "if model == 'forest' and deep: x = uniform(0, 2)\n"
    )
    assert set(conditions(cell)) == {"x[model=svm, deep=True]", "x[model=forest, deep=True]"}
