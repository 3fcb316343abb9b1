"""Every verb once, from the first line of a cell to its result."""

from __future__ import annotations

import pytest

from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

_SEARCH = """%%distribute search --metric loss --mode min --trials 4 --seed 1 --bring x
from jupyter_ddl import report, uniform
x = uniform(0, 1, default=0.5)
report(step=0, loss=(x - 0.3) ** 2)
"""
_MAP = """%%distribute map --over x in numbers -o squares
x * x
"""
_DDP = """%%distribute ddp -n 2 --bring total
import torch
import torch.distributed as dist
from jupyter_ddl import rank, report
total = torch.tensor([rank() + 1.0])
dist.all_reduce(total)
report(step=0, total=float(total))
"""
_RUN = """%%distribute run -n 2 --no-init -t 1 --bring mine
mine = rank() * 10
"""
_FIT = """%%distribute fit
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
X = np.arange(40.0).reshape(20, 2)
found = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0, 10.0]}, cv=2).fit(X, X[:, 0])
"""


@pytest.mark.parametrize(
    ("cell", "question", "answer"),
    [
        pytest.param(
            _SEARCH,
            "_run.state, len(_run.trials), x == _run.best.params['x']",
            "('complete', 4, True)",
            id="search",
        ),
        pytest.param(
            _MAP, "squares.state, squares.values", "('complete', [0, 1, 4, 9, 16])", id="map"
        ),
        pytest.param(
            _DDP,
            "_run.state, total.tolist(), set(_run.metrics.total)",
            "('complete', [3.0], {3.0})",
            id="ddp",
        ),
        pytest.param(_RUN, "mine", "10", id="run"),
        pytest.param(
            _FIT,
            "_run.state, len(_run.trials), found.best_params_['alpha']",
            "('complete', 3, 0.1)",
            id="fit",
        ),
    ],
)
def test_a_cell_of_this_verb_runs_and_its_result_comes_home(
    attached_kernel: LiveKernel, cell: str, question: str, answer: str
) -> None:
    attached_kernel.run("numbers = list(range(5))").check()
    attached_kernel.run(cell, timeout_s=110).check()
    assert attached_kernel.value(question) == answer
