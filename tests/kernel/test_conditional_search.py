"""A search over models with hyper-parameters of their own, as everyone writes it."""

from __future__ import annotations

import pytest

from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel


@pytest.fixture
def kernel(attached_kernel: LiveKernel) -> LiveKernel:
    return attached_kernel


_DATA = """from sklearn.datasets import load_iris

x, y = load_iris(return_X_y=True)
"""
_CELL = """from jupyter_ddl import choice, loguniform, randint, report
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

model = choice("svm", "tree", "knn")
if model == "svm":
    C = loguniform(1e-2, 1e2)
    kernel = choice("rbf", "linear")
    if kernel == "rbf":
        gamma = loguniform(1e-3, 1.0)
        model = SVC(C=C, gamma=gamma)
    else:
        model = SVC(C=C, kernel=kernel)
elif model == "tree":
    depth = randint(1, 5)
    model = DecisionTreeClassifier(max_depth=depth, random_state=0)
else:
    model = KNeighborsClassifier()
report(acc=model.fit(x[::2], y[::2]).score(x[1::2], y[1::2]))
"""
_NAMES = """[sorted(set(row.dropna().index) & {"C", "kernel", "gamma", "depth"})
 for _, row in run.trials.iterrows()]"""
_EXPECTED = """[
    {"svm": ["C", "gamma", "kernel"] if row.kernel == "rbf" else ["C", "kernel"],
     "tree": ["depth"], "knn": []}[row.model] for row in run.trials.itertuples()]"""


def test_models_with_parameters_of_their_own_are_searched_in_one_cell(kernel: LiveKernel) -> None:
    # As it is without this suite's setting: its trials begin in processes that have scikit-learn.
    kernel.run("%env JUPYTER_DDL_PREWARM=sklearn").check()
    kernel.run(_DATA).check()
    assert "acc=" in kernel.run(_CELL).check().text.replace(" ", "")  # plainly, as svm

    line = "%%distribute search --metric acc --trials 14 --sampler tpe --seed 5 -o run\n"
    shown = kernel.run(line + _CELL, timeout_s=120).check()

    views = [bundle for bundle in shown.displays if "text/html" in bundle]
    assert "14 of 14 trials" in views[0]["text/plain"]
    for text in views[-1].values():
        assert "nan" not in str(text).lower()
    assert kernel.value("run.state, len(run.trials), run.errors") == "('complete', 14, {})"
    assert kernel.value("set(run.trials.model) == {'svm', 'tree', 'knn'}") == "True"
    kernel.run(f"found = {_NAMES}\nexpected = {_EXPECTED}").check()
    assert kernel.value("found == expected or (found, expected)") == "True"
    assert kernel.value("str(run.trials.depth.dtype)") == "'Int64'"

    again = line.replace("-o run", "-a -o again")
    kernel.run(again + _CELL).check()
    kernel.run("again.wait()", 120).check()
    kernel.run("names = ['model', 'C', 'kernel', 'gamma', 'depth', 'value']").check()
    assert kernel.value("run.trials[names].equals(again.trials[names])") == "True"

    grid = _CELL.replace("loguniform(1e-2, 1e2)", "choice(1, 10)")
    grid = grid.replace("loguniform(1e-3, 1.0)", "choice(0.1, 0.5, 1)")
    kernel.run("%%distribute search --metric acc --sampler grid -o run\n" + grid, 120).check()
    # svm: 2 (rbf: 3, linear: 1); tree: 5; knn: 1.
    assert kernel.value("len(run.trials), run.trials.model.value_counts().to_dict()") == (
        "(14, {'svm': 8, 'tree': 5, 'knn': 1})"
    )
