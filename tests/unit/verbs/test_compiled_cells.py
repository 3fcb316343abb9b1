"""Whole cells: to a spec and a program, or to one line of refusal."""

import itertools
import re

import numpy as np
import pytest

from jupyter_ddl.cell.dry_run import describe
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.plugins import SAMPLERS
from jupyter_ddl.protocol.program import Labels
from jupyter_ddl.protocol.sampling import SamplerSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.verbs.map import Map
from tests.unit.cell.cell_makers import compiled, notebook

SEARCH = "search --metric acc"
CELL = "lr = loguniform(1e-4, 1e-1)\nacc = lr * X.sum()\nreport(step=0, acc=acc)\n"


def test_a_search_becomes_a_spec_and_a_program():
    X = np.ones((100, 1000))  # noqa: N806
    namespace = notebook(X=X, unused=object())
    found = compiled(f"{SEARCH} --trials 7 --seed 5 --bring acc --timeout 1m", CELL, namespace)
    assert found.spec.verb.metric == "acc"
    assert found.spec.verb.n_trials == 7
    assert found.spec.verb.space == {"lr": Uniform(1e-4, 1e-1, log=True)}
    assert found.spec.verb.sampler == SamplerSpec("random")
    assert found.spec.program.source == "\n" + CELL
    assert found.spec.program.filename == "In [3]"
    assert [each.name for each in found.spec.program.captures] == ["X"]
    assert found.spec.program.imports[-1] == "numpy"
    assert found.spec.program.ends_in_expression
    assert found.spec.seed == 5
    assert found.spec.limits.timeout_s == 60
    assert [digest for digest, _ in found.blobs] == [
        found.spec.program.payload,
        *found.spec.program.buffers,
    ]


def test_a_search_by_grid_alone_takes_all_points():
    cell = "report(acc=lr + wd)"
    found = compiled(f"{SEARCH} --grid lr=1,2,3 --grid wd=0,1", cell)
    assert found.spec.verb.sampler.name == "grid"
    assert found.spec.verb.n_trials == 6
    assert compiled(f"{SEARCH} --grid lr=1,2 --grid wd=1 --trials 9", cell).spec.verb.n_trials == 9
    some = compiled(f"{SEARCH} --grid lr=1,2 --grid wd=1 --trials 9 --sampler grid", cell)
    assert some.spec.verb.n_trials == 2


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS.built_in if name != "grid"])
def test_each_sampler_is_known(sampler):
    found = compiled(f"{SEARCH} --sampler {sampler}", CELL, notebook(X=np.ones(3)))
    assert found.spec.verb.sampler == SamplerSpec(sampler)
    assert found.spec.verb.n_trials == 20


def test_a_sampler_may_be_a_notebook_variable_and_then_travels():
    class Mine:
        pass

    found = compiled(f"{SEARCH} --sampler mine", CELL, notebook(X=np.ones(3), mine=Mine()))
    assert found.spec.verb.sampler == SamplerSpec("mine", in_notebook=True)
    assert [each.name for each in found.spec.program.captures] == ["X", "mine"]


def test_a_space_dict_travels_under_its_name():
    namespace = notebook(space={"act": [len, print]})
    found = compiled(f"{SEARCH} --space space", "report(acc=act)", namespace)
    assert found.spec.program.space_name == "space"
    assert found.spec.program.space_labels == {"act": Labels(("act",), ("len", "print"))}
    assert [each.name for each in found.spec.program.captures] == ["space"]


def test_a_notebook_value_of_an_injected_parameter_stays_here():
    found = compiled(f"{SEARCH} --grid lr=1,2", "report(acc=lr)", notebook(lr=object()))
    assert found.spec.program.captures == ()


def test_the_only_reported_metric_need_not_be_named():
    found = compiled("search", CELL, notebook(X=np.ones(3)))
    assert found.spec.verb.metric == "acc"
    assert "the only one" in found.notes[0]


@pytest.mark.parametrize(
    "cell",
    [
        "lr = uniform(0, 1)\nacc = lr",
        "lr = uniform(0, 1)\nfor i in range(3):\n    acc = lr",
        "lr = uniform(0, 1)\nreport(**{'acc': lr})",
        "lr = uniform(0, 1)\nfit(lr, report)",
        "lr = uniform(0, 1)\nimport jupyter_ddl as d\nd.report(acc=1)",
        "lr = uniform(0, 1)\ntrain(lr)",
    ],
)
def test_a_metric_may_be_reported_or_assigned_anywhere(cell):
    code = "from jupyter_ddl import report\ndef train(lr): report(acc=lr)\ndef fit(lr, f): ..."
    assert compiled(SEARCH, cell, notebook(code)).spec.verb.metric == "acc"


def test_a_fresh_seed_is_drawn_each_time():
    seeds = {compiled(SEARCH, "acc = uniform(0, 1)").spec.seed for _ in range(5)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_map_captures_its_sequence_as_a_list():
    found = compiled("map --over x in items", "y = x + 1", notebook(items=range(4)))
    assert found.spec.verb == Map(over="items", element="x", n_items=4)
    assert [(each.name, each.type_name) for each in found.spec.program.captures] == [
        ("items", "list")
    ]
    assert found.notes == ()


def test_a_sequence_may_be_an_expression_of_the_notebooks_names():
    found = compiled("map --over n in range(1, 40, k)", "n", notebook(k=13))
    assert found.spec.verb == Map(over="range(1, 40, k)", element="n", n_items=3)
    assert [each.name for each in found.spec.program.captures] == ["range(1, 40, k)"]


def test_what_the_line_makes_may_be_an_iterator_and_have_a_condition():
    found = compiled("map --over n, k in zip(a, range(3))", "n", notebook(a=[7, 8]))
    assert found.spec.verb == Map(over="zip(a, range(3))", element="n, k", n_items=2)
    assert found.notes == ()
    found = compiled("map --over n in range(9) if n % k == 0", "n", notebook(k=3))
    assert found.spec.verb.n_items == 3


def test_a_map_that_never_reads_its_element_says_so():
    found = compiled("map --over items", "y = 1", notebook(items=[1]))
    assert found.notes == ("the cell never reads 'item', the element of items",)


class Rows:
    rows = iter([1])


class Endless:
    def __len__(self):
        return 3

    def __getitem__(self, at):
        return at


@pytest.mark.parametrize(
    ("line", "cell", "names", "message"),
    [
        (
            SEARCH,
            "lr = uniform(0, 1)",
            {},
            "metric 'acc' is never reported or assigned .*no report",
        ),
        (SEARCH, "lr = uniform(0, 1)\nreport(acc_=1)", {}, "names seen: acc_; did you mean 'acc_'"),
        ("search", "lr = uniform(0, 1)\nreport(a=1, b=1)", {}, "needs --metric NAME.*a, b"),
        (SEARCH, "acc = 1", {}, "no hyper-parameter to search"),
        (SEARCH, "acc = uniform(2, 1)", {}, "low 2.0 is greater than high 1.0; swap them"),
        (SEARCH, "acc = (", {}, r"In \[3\], line 2: syntax error"),
        (SEARCH, "acc = uniform(0, X_trian)", {"X_train": 1}, "X_trian has no value"),
        (SEARCH, "acc = uniform(0, 1)\nX_trian", {"X_train": 1}, "did you mean 'X_train'"),
        (SEARCH, "import torhc\nacc = uniform(0, 1)", {}, "module 'torhc' is not installed here"),
        (f"{SEARCH} --sampler tep", "acc = uniform(0, 1)", {}, "did you mean 'tpe'"),
        (f"{SEARCH} --sampler nope_x:A", "acc = uniform(0, 1)", {}, "module 'nope_x' is not"),
        (f"{SEARCH} --sampler grid", "acc = uniform(0, 1)", {}, "this range is continuous"),
        (
            f"{SEARCH} --sampler grid",
            "a = randint(1, 10**9)\nacc = a",
            {},
            "the grid has 1,000,000,000 points",
        ),
        (
            f"{SEARCH} --bring modle",
            "acc = uniform(0, 1)\nmodel = 1",
            {},
            "never assigns 'modle'; did you",
        ),
        (f"{SEARCH} --push Y", "acc = uniform(0, 1)", {}, "--push Y: the notebook has no such"),
        ("map --over itmes", "item", {"items": [1]}, "did you mean 'items'"),
        ("map --over items", "item", {"items": []}, "is empty"),
        ("map --over range(n)", "item", {}, r"--over range\(n\): NameError: name 'n' is not"),
        ("map --over x.rows", "item", {"x": Rows()}, r"make a list first: --over list\(x.rows\)"),
        ("map --over iter([])", "item", {}, r"--over iter\(\[\]\) is empty"),
        ("map --over itertools.count()", "item", {"itertools": itertools}, "more than 1,000,000"),
        (
            "map --over a, b in items",
            "a",
            {"items": [(1, 2), 3]},
            "element 1 is a int, which is not 2",
        ),
        ("map --over a, b in items", "a", {"items": ["abc"]}, "element 0 has 3 values, 2 were"),
        ("map --over items", "item", {"items": 3}, "is a int without a length"),
        ("map --over items", "item", {"items": iter([1])}, "items = list"),
        ("map --over items", "item", {"items": Endless()}, "has length 3 but yields more"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_starts(line, cell, names, message):
    with pytest.raises(JupyterDDLError) as caught:
        compiled(line, cell, notebook(**names))
    text = str(caught.value)
    assert re.search(message, text), text
    assert "\n" not in text


def test_a_frame_is_not_mapped_over_by_accident():
    pd = pytest.importorskip("pandas")
    with pytest.raises(JupyterDDLError, match="elements are its column names"):
        compiled("map --over items", "item", notebook(items=pd.DataFrame({"a": [1]})))


def test_a_dry_run_tells_all_that_would_be_sent(tmp_path):
    (tmp_path / "helper.py").write_text("x = 1\n")
    cell = "import helper\nact = choice(len, print, default=len)\n" + CELL
    namespace = notebook("small = 3", X=np.ones((100, 1000)))
    line = f"{SEARCH} --trials 4 --seed 9 --push small --bring acc --max-parallel 2 --timeout 5m"
    text = describe(compiled(line, cell, namespace, tmp_path))
    lines = text.splitlines()
    assert "Search: 4 trials, acc (max)" in lines
    assert "  lr: 0.0001 … 0.1, log" in lines
    assert "  act: one of len, print (default len)" in lines
    assert "Captured: 2 names, 781.4 KiB" in lines
    assert lines.index("  X: numpy.ndarray, 781.4 KiB") < lines.index("  small: int, 5 B")
    assert "Beside the stream: 1 buffer, 781.3 KiB, shared per host" in lines
    assert "  helper.py: 6 B" in lines
    assert any(each.startswith("Packages:") and "numpy" in each for each in lines)
    assert any(each.startswith("To send: 3 blobs, 781.") for each in lines)


def test_a_dry_run_of_a_map_counts_its_items():
    text = describe(compiled("map --over items", "item", notebook(items=[1, 2])))
    assert "Map: 2 items of items, each as item" in text
